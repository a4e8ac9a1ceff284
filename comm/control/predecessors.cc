#include "comm/control/predecessors.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "comm/error.h"

namespace motley {
namespace {

constexpr int kQueued = 16;  // questions to one that does not take them

}  // namespace

Predecessors::Predecessors(zmq::context_t& context, const std::vector<std::string>& addresses) {
  for (const std::string& address : addresses) {
    zmq::socket_t socket(context, zmq::socket_type::dealer);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::ipv6, true);
    socket.set(zmq::sockopt::immediate, true);
    socket.set(zmq::sockopt::reconnect_ivl, 20);
    socket.set(zmq::sockopt::reconnect_ivl_max, 200);
    socket.set(zmq::sockopt::maxmsgsize, std::int64_t{4 * kMaxValueBytes});
    socket.set(zmq::sockopt::sndhwm, kQueued);
    try {
      socket.connect(address);
    } catch (const zmq::error_t& error) {
      throw Error(ErrorCode::kInvalid,
                  fmt::format("controller: cannot stand by for \"{}\": {}. Use tcp://host:port.",
                              address, error.what()));
    }
    sockets_.push_back(std::move(socket));
  }
}

void Predecessors::ask(const Message& question) {
  const std::vector<std::byte> bytes = encode(question);
  for (zmq::socket_t& socket : sockets_) {
    try {
      (void)socket.send(zmq::buffer(bytes), zmq::send_flags::dontwait);
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) throw;
    }
  }
}

void Predecessors::receive(
    const std::function<void(std::size_t which, const Message& answer)>& take) {
  zmq::message_t frame;
  for (std::size_t which = 0; which < sockets_.size();) {
    try {
      if (!sockets_[which].recv(frame, zmq::recv_flags::dontwait)) {
        ++which;
        continue;
      }
    } catch (const zmq::error_t& error) {
      if (error.num() == EINTR) return;  // the poll comes back to it
      throw;
    }
    const ConstBytes bytes(frame.data<std::byte>(), frame.size());
    auto answer = decode(bytes);
    if (!answer) answer = refusal_of(bytes);
    if (answer) take(which, *answer);
  }
}

void Predecessors::add_to(std::vector<zmq::pollitem_t>& items) {
  for (zmq::socket_t& socket : sockets_) items.push_back({socket.handle(), 0, ZMQ_POLLIN, 0});
}

}  // namespace motley
