// comm/control/zmq_channel.h: the way to the controller over ZeroMQ.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/control/channel.h"

namespace motley {

struct ZmqChannelOptions {
  std::vector<std::string> controllers;  // "tcp://host:port", of which one serves at a time
  std::string identity;  // unique for all time: a controller drops who comes back under an old one
};

// Throws kInvalid if an address cannot be understood. A controller that is not there yet is waited
// for.
std::unique_ptr<ControlChannel> make_zmq_channel(const ZmqChannelOptions& options, Clock& clock);

}  // namespace motley
