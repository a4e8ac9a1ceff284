// comm/transport/transport.h: what every way of moving bytes between ranks provides.
//
// Messages between two ranks that carry the same Tag::call and Tag::piece match in the order in
// which they were posted, whatever else is under way. A send of any size completes without the
// matching receive being posted (up to a bound per pair of ranks, after which it waits for room).
// Data arrives in memory of the transport and is handed to the receiver there, so a call can be
// given up at any moment: after cancel() neither the sink nor a buffer is touched again.
//
// One thread at a time, except wake() and report_lost(), which any thread may call.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/call_kind.h"
#include "comm/clock.h"
#include "comm/dtype.h"
#include "comm/error.h"
#include "comm/group.h"
#include "comm/topology.h"
#include "comm/view.h"

namespace motley {

struct DeviceMessage;
struct Options;
class DeviceMessages;
class Team;

// One call of one group: the group's tag and the call's number in it.
struct CallId {
  GroupTag group;
  std::uint32_t number = 0;
  friend auto operator<=>(const CallId&, const CallId&) = default;
};

// What all members of a call must agree on. Travels in every header, so disagreement costs no trip.
struct Fingerprint {
  std::uint64_t count = 0;
  CallKind kind = CallKind::kBarrier;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::uint8_t algorithm = 0;  // index of the schedule family
  std::uint32_t root = 0;
  std::uint32_t pieces = 1;  // into how many the buffer is cut
  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

// Whether messages with these may belong to one call. Where blocks vary, each has a count of its
// own.
inline bool may_be_one_call(Fingerprint a, const Fingerprint& b) noexcept {
  if (a.kind == b.kind && varies(a.kind)) a.count = b.count;
  return a == b;
}

// Header of a message. A call is cut into pieces that run the same schedule independently.
struct Tag {
  // Pieces that are about the call, not of it: see Transport::listen().
  static constexpr std::uint32_t kNotice = ~std::uint32_t{0};
  static constexpr std::uint32_t kQuestion = kNotice - 1;

  CallId call;
  std::uint32_t piece = 0;
  Fingerprint fingerprint;
};

// Receives completions; called from Transport::poll() only, on the polling thread. May post from
// inside.
class Sink {
 public:
  // A send's data has been taken; its buffer may be reused.
  virtual void sent(std::uint32_t cookie) = 0;
  // A message has arrived. `data` is valid during the call only.
  virtual void received(std::uint32_t cookie, const Tag& tag, ConstBytes data) = 0;
  // The same where the message is in device memory, for calls that are.
  virtual void received_on_device(std::uint32_t cookie, const Tag& tag, DeviceMessage message);
  // The operation will not complete.
  virtual void failed(std::uint32_t cookie, const Error& error) = 0;
  // Rank `from` sent a message of the call that the sink runs, but with another fingerprint. Told
  // also of messages that nobody has asked for; those that were asked for are received() as well.
  virtual void disagreed(int from, const Tag& theirs, const Fingerprint& ours);

 protected:
  ~Sink() = default;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  virtual const char* name() const noexcept = 0;
  // Largest message that post_send takes.
  virtual std::size_t max_message_bytes() const noexcept = 0;
  // What a message costs, roughly, the same on all ranks: for choosing among algorithms.
  virtual Link link() const noexcept = 0;
  // The number of each rank's host, from 0; empty where that is not known or but one.
  virtual std::vector<int> hosts() const { return {}; }
  // How many cores the ranks share, if they are on one host and it is known, at most one for each;
  // else 0. The same on all ranks.
  virtual int cores() const noexcept { return 0; }
  // What is known of the links, for those who can use it; one as link() says is but a guess. While
  // no call is under way.
  virtual void use_links(const Topology& /*topology*/) {}
  // Runs whole collectives (team.h), of all ranks or of those on this rank's host; null where the
  // transport only moves messages.
  virtual Team* team() noexcept { return nullptr; }
  // The same, if all members of `group`, this rank among them, are in it; else null.
  virtual Team* team_of(const Group& /*group*/) noexcept { return team(); }

  // Moves messages in device memory, too (device_messages.h); null where it does not.
  virtual DeviceMessages* device_messages() noexcept { return nullptr; }

  // Sends `data` to rank `to` (never to oneself). Returns true if the data has been taken already;
  // otherwise sent(cookie) or failed(cookie) follows, and `data` must stay until then.
  virtual bool post_send(int to, const Tag& tag, ConstBytes data, Sink& sink,
                         std::uint32_t cookie) = 0;
  // Expects the next message of `tag` from rank `from`. received(cookie) or failed(cookie) follows,
  // never from inside this call.
  virtual void post_recv(int from, const Tag& tag, Sink& sink, std::uint32_t cookie) = 0;

  // `sink` runs `call` from now on, until cancel() or close(): see Sink::disagreed().
  virtual void open(Sink& sink, const CallId& call, const Fingerprint& fingerprint) = 0;
  // `call` is complete here: no more messages of it are due.
  virtual void close(const CallId& call) noexcept = 0;
  // Messages with the piece Tag::kNotice are received() by `notices` without being asked for, their
  // sender as the cookie. It is disagreed() with by those that come for one of the calls last
  // closed and have another fingerprint than that.
  // Messages with the piece Tag::kQuestion are received by nobody: they are there to disagree.
  virtual void listen(Sink& notices) noexcept = 0;

  // Moves what can be moved without waiting. True if anything was.
  virtual bool poll() = 0;
  // Waits until something may have arrived, wake() was called or `until` has passed. May return
  // early.
  virtual void wait(TimePoint until) = 0;
  // As wait(), without looking around for a while first.
  virtual void sleep(TimePoint until) { wait(until); }
  // Ends the wait under way or, where there is none, the next one.
  virtual void wake() noexcept = 0;

  // Forgets every operation of `sink`. `call`, which it ran, is closed: later messages of it are
  // dropped.
  virtual void cancel(Sink& sink, const CallId& call) noexcept = 0;
  // Messages of controller-formed groups with an earlier tag are stale from now on: they are
  // dropped.
  virtual void retire_before(const GroupTag& tag) noexcept = 0;

  // Messages refused so far because their sender does not hold the job's token or speaks otherwise;
  // any thread.
  virtual std::uint64_t refused() const noexcept { return 0; }

  // `peer` is dead: operations with it fail with kPeerLost and `why`, now and in future.
  virtual void report_lost(int peer, const std::string& why) noexcept = 0;
};

}  // namespace motley
