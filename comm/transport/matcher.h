// comm/transport/matcher.h: brings arriving messages and posted receives of one rank together.
//
// Every transport that moves bytes owns one. Messages match receives of the same peer, call and
// piece in order. A message that nobody has asked for yet is copied and kept; messages of closed
// calls and stale groups are dropped. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm/transport/device_messages.h"
#include "comm/transport/transport.h"

namespace motley {

class Matcher {
 public:
  // A receive: handed a kept message in the next deliver(), or the next that arrived() brings.
  void post(int from, const Tag& tag, Sink& sink, std::uint32_t cookie);
  // A message: handed to its receive before this returns, else copied and kept.
  void arrived(int from, const Tag& tag, ConstBytes data);
  // The same, but kept as it is.
  void arrived(int from, const Tag& tag, DeviceMessage message);
  // Hands over what post() matched and fails what fail_peer() doomed. True if there was anything.
  bool deliver();
  // A send to `to`, which is lost: it fails in the next deliver().
  void fail_send(int to, Sink& sink, std::uint32_t cookie);
  // Whether deliver() may find something.
  bool ready() const noexcept { return !ready_.empty(); }

  // See Transport.
  void open(Sink& sink, const CallId& call, const Fingerprint& fingerprint);
  void close(const CallId& call) noexcept;
  void listen(Sink& notices) noexcept { notices_ = &notices; }
  void cancel(Sink& sink, const CallId& call) noexcept;
  void retire_before(const GroupTag& tag) noexcept;
  // Receives from `peer`, posted now or later, fail with kPeerLost, `why` and the rank to blame:
  // the peer itself, or the one for whose loss it left. Kept messages are still handed over.
  void fail_peer(int peer, const std::string& why) { fail_peer(peer, why, peer); }
  void fail_peer(int peer, const std::string& why, int blamed);
  // How operations with `peer` fail; null while it lives.
  const Error* lost(int peer) const noexcept;

  // Peers of which a message is expected, ascending.
  std::vector<int> awaited() const;
  // Bytes of kept messages from `peer`: a transport may stop reading from it at some bound.
  std::size_t kept_bytes(int peer) const noexcept;

 private:
  struct Receive {
    Tag tag;
    Sink* sink;
    std::uint32_t cookie;
  };
  struct Message {
    Tag tag;
    std::vector<std::byte> data;
    DeviceMessage device;  // instead, if it has memory

    std::size_t size() const noexcept { return device ? device.size : data.size(); }
  };
  struct Peer {
    std::vector<Receive> receives;  // in order of posting
    std::deque<Message> messages;   // in order of arrival
    std::vector<Receive> sends;     // doomed
    std::size_t kept_bytes = 0;
    bool ready = false;  // a receive here may match a kept message, or is doomed
    std::optional<Error> lost;
  };

  struct Open {  // a call under way
    CallId call;
    Fingerprint fingerprint;
    Sink* sink;
  };
  static constexpr std::size_t kDone = 64;

  bool stale(const CallId& call) const noexcept;
  std::optional<Receive> claim(Peer& peer, const Tag& tag);
  void keep(Peer& peer, Message message);
  bool deliver_one(Peer& peer);
  bool foreign(int from, const Tag& tag);
  void mark_ready(int rank, Peer& peer);

  std::unordered_map<int, Peer> peers_;
  std::vector<int> ready_;
  std::vector<Open> open_;
  std::array<Open, kDone> done_{};  // the calls last closed, round and round; without a sink: none
  std::size_t next_done_ = 0;
  Sink* notices_ = nullptr;
  GroupTag retired_before_;                    // of controller-formed groups
  std::deque<CallId> closed_;                  // the last cancelled calls
  std::vector<std::vector<std::byte>> spare_;  // buffers to use again
};

}  // namespace motley
