// comm/transport/ucx_worker.h: UCX, as little of it as we use: connections that carry messages.
//
// Not thread-safe, but any thread may call, one after another.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "comm/clock.h"
#include "comm/transport/device_messages.h"
#include "comm/view.h"

namespace motley {

struct UcxNetwork {
  std::string device;  // of the kernel: "eth0"; empty: all that there are
  bool v6 = false;
  std::string ports;  // as Options::ports
};

class UcxWorker {
 public:
  // What to do with a message that a peer offers: `from` is who it is, or -1 to refuse it. Its data
  // is fetched into device memory where `into` is that.
  struct Fetch {
    int from = -1;
    DeviceMessage into;
  };
  struct Callbacks {  // run inside progress(), or, broken() only, inside send()
    std::function<void(ConstBytes)> message;  // valid during the call; need not be aligned
    // A peer has a message with this header and `size` bytes of data, by rendezvous. Once fetched
    // it is given to message() as a whole, or to device_message().
    std::function<Fetch(ConstBytes header, std::size_t size)> offer;
    std::function<void(ConstBytes header, DeviceMessage data)> device_message;
    std::function<void(int peer, const std::string& why)> broken;  // no message gets through
  };
  UcxWorker(Callbacks callbacks, const UcxNetwork& network);
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;
  ~UcxWorker();  // closes all connections at once, whatever is under way

  // How others connect() to this one; binary.
  std::string address() const;
  // Throws kPeerLost if it is dead already or no network joins the two.
  void connect(int peer, const std::string& address);
  void disconnect(int peer) noexcept;
  // Sends `header` and `data` as one message. Both are copied: they may go when this returns.
  void send(int peer, ConstBytes header, ConstBytes data);
  // The same by rendezvous: `peer` is told, and fetches the copy when it makes progress; where the
  // network does not do that by itself, while this side makes progress, too.
  void offer(int peer, ConstBytes header, ConstBytes data);
  // The same with data in device memory, which is not copied, but kept until UCX is done with it.
  void offer(int peer, ConstBytes header, DeviceMessage data);
  // True once all that was sent to `peer` so far has left this process. Starts a check or looks at
  // the one under way; progress() moves it on.
  bool flushed(int peer);
  // True while UCX still reads from copies of messages.
  bool sending() const noexcept;
  // Whether the network reads and writes a peer's memory by itself.
  bool remote_memory() const noexcept;
  // Whether messages may be in device memory.
  bool device_memory() const noexcept;

  // Moves what can be moved. True if anything was. Throws what a callback threw.
  bool progress();
  // False if there is something to progress(); else descriptor() becomes readable when there is.
  bool arm();
  int descriptor() const noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace motley
