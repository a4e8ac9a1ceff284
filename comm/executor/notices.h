// comm/executor/notices.h: a rank that finds a disagreement, or whose part of a call broke, tells
// the other members of the call, which may never talk to those that it is with.
//
// A notice is a small message about a call. It reaches members that run the call, have not begun it
// or have completed it already; the engine decides what becomes of it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/error.h"
#include "comm/group.h"
#include "comm/transport/transport.h"

namespace motley {

struct Notice {
  CallId call;
  int from = -1;           // rank that tells
  std::vector<int> ranks;  // to blame, ascending
  std::string text;        // both sides' values, or what broke
  bool pass_on = false;    // the receiver shall tell the other members
  ErrorCode code = ErrorCode::kMismatch;
};

inline constexpr std::size_t kMaxNoticeBytes = 1024;

// Whether `notice` concerns a call of a group that this rank is in: the call that it is about, a
// later one of the same group or, as a message may be complete for its sender when the receiver
// finds that they disagree, any that the receiver takes part in. Nothing but such a message is news
// for a call that is `complete` here.
bool concerns(const Notice& notice, const CallId& call, const Group& group, bool complete) noexcept;

std::vector<std::byte> encode(const Notice& notice);
// Fills in what the header of the message says. Nothing if `data` is not what encode() gives.
std::optional<Notice> decode_notice(int from, const CallId& call, ConstBytes data);

// "all_reduce of count 1024 … at rank 0, broadcast of … at rank 1".
Notice disagreement(const CallId& call, int here, const Fingerprint& mine, int there,
                    const Fingerprint& theirs);

class Notices final : public Sink {
 public:
  explicit Notices(Transport& transport);
  Notices(const Notices&) = delete;
  Notices& operator=(const Notices&) = delete;
  ~Notices();

  // Sends `notice` to all members but this rank.
  void tell(const Group& group, const Notice& notice);
  // Asks `ranks` whether they are in the same call. Who is in another one finds a disagreement.
  void ask(const CallId& call, const Fingerprint& fingerprint, const std::vector<int>& ranks);
  // True while some are still to be sent.
  bool sending() const noexcept { return unsent_ > 0; }
  // Those that have come since the last call.
  std::vector<Notice> take();

  // One that concerns no call under way waits for the next of its group. Few are kept.
  void keep(Notice notice);
  // Whether something that was kept concerns `call` of `group`.
  bool keeps_for(const CallId& call, const Group& group, bool complete) const noexcept {
    return !kept_.empty() && has_kept_for(call, group, complete);
  }
  // The first of that, once.
  std::optional<Notice> take_kept(const CallId& call, const Group& group, bool complete);
  // `call` failed here: what others say of it is no news.
  void forget(const CallId& call);
  bool is_news(const CallId& call) const noexcept;

  void sent(std::uint32_t cookie) override;
  void received(std::uint32_t from, const Tag& tag, ConstBytes data) override;
  void failed(std::uint32_t cookie, const Error& error) override;
  // A message of another call for one that is complete here.
  void disagreed(int from, const Tag& theirs, const Fingerprint& ours) override;

 private:
  bool has_kept_for(const CallId& call, const Group& group, bool complete) const noexcept;
  // Whether it has been taken already.
  bool send(int rank, const Tag& tag, ConstBytes data, std::uint32_t cookie);

  Transport& transport_;
  struct Outgoing {
    std::vector<std::byte> data;
    int unsent = 0;
  };
  std::map<std::uint32_t, Outgoing> outgoing_;  // by cookie; they stay until they are sent to all
  std::uint32_t cookies_ = 0;
  int unsent_ = 0;  // of all, and of questions
  std::vector<Notice> arrived_;
  std::deque<Notice> kept_;
  std::deque<CallId> failed_;
};

}  // namespace motley
