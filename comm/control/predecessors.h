// comm/control/predecessors.h: the way from a controller to those that it stands by for, over
// ZeroMQ. Who is not there is tried again and again, names are looked up each time; what is asked
// meanwhile is lost.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "comm/control/message.h"

namespace motley {

class Predecessors {
 public:
  // Throws kInvalid if an address cannot be understood.
  Predecessors(zmq::context_t& context, const std::vector<std::string>& addresses);

  void ask(const Message& question);
  void receive(const std::function<void(std::size_t which, const Message& answer)>& take);
  // To be polled for what receive() takes.
  void add_to(std::vector<zmq::pollitem_t>& items);

 private:
  std::vector<zmq::socket_t> sockets_;
};

}  // namespace motley
