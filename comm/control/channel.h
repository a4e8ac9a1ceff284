// comm/control/channel.h: the way between one rank and the controller.
#pragma once

#include <string>

#include "comm/clock.h"
#include "comm/control/message.h"

namespace motley {

// Receives what happens on a channel; called on the channel's thread only.
class ChannelEvents {
 public:
  virtual void on_message(const Message& message) = 0;
  // Called when the time that the last call returned has come, and may be called earlier. Returns
  // when next.
  virtual TimePoint on_time() = 0;
  virtual void on_exit(int rank) = 0;
  // The descriptor given to watch_socket() is readable.
  virtual void on_socket() = 0;
  // There was a connection, and there is none: the controller has ended, or the way to it. It may
  // be back at once.
  virtual void on_broken() = 0;

 protected:
  ~ChannelEvents() = default;
};

class ControlChannel {
 public:
  virtual ~ControlChannel() = default;
  // Begins to deliver events, on a thread of the channel's own.
  virtual void start(ChannelEvents& events) = 0;
  // Ends delivery: when it returns, no event is under way and none follows. Idempotent.
  virtual void stop() noexcept = 0;
  // Queues a message; any thread. It may get lost, as the network pleases.
  virtual void send(const Message& message) = 0;
  // Reports on_exit(rank) once the process `pid` of this host has ended; any thread.
  virtual void watch_process(int rank, int pid) = 0;
  // Reports on_socket() while `descriptor` is readable; any thread, once.
  virtual void watch_socket(int descriptor) = 0;
  // Goes on to the next of several controllers, after the last to the first; any thread.
  virtual void try_next() = 0;
  // Where the controller is that is spoken to: "tcp://10.0.0.1:4000".
  virtual std::string controller() const = 0;
};

}  // namespace motley
