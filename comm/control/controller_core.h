// comm/control/controller_core.h: the controller of a job as a state machine without I/O.
//
// Messages and the time in, messages and the next timer out; so the same machine runs behind a
// ZeroMQ socket, between threads and in a simulator. One thread at a time.
//
//   rendezvous  a key-value store; a get is answered once its key is set
//   membership  one holder per rank, admitted with the job's token, known by an identity that is
//               never used again. A rank silent for `lease` is dead, and so is one reported lost;
//               everyone learns of it, and what the dead one says later is answered with kFenced
//   progress    each sign of life tells where its rank is among its calls; any rank may ask for
//               all, and have every rank asked for its last calls
//   supplies    SupplyDesk hands numbers out to ranks, and again what the dead held
//   grouping    Matchmaker forms the groups, GroupTable ends them: every kReady gets in the end
//               one group, kSolo or error, unless its rank dies, leaves or withdraws it
//   present     a rank that has not come to the grouping so far is waited for no longer than two
//               leases after the first that has; one that has only taken a model, not at all. It
//               counts from when it first says that it is, or will be, ready with what counts
//   announced   a rank that says when it will be ready is in the queue a round trip before that,
//               and as much earlier as it wants to know its group, and has its answer when it is.
//               Should it be late by more than it usually is, or not come at all, it is dropped
//               from its group, whose others are told at once
//   restart     it keeps nothing that ranks cannot tell it again. A rank that it does not know is
//               asked to say hello, with the epoch that it comes from; the epoch goes above that,
//               all are told, repeat what has no answer yet, and name the group that they have not
//               heard the end of. Who does not come back within two leases is taken for dead
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm/clock.h"
#include "comm/control/group_note.h"
#include "comm/control/message.h"
#include "comm/control/supply_desk.h"
#include "comm/error.h"
#include "comm/group/group_metrics.h"
#include "comm/group/group_table.h"
#include "comm/group/matchmaker.h"

namespace motley {

struct ControllerConfig {
  int size = 1;
  std::string token;
  Duration lease = seconds(1.5);
  // In [1, 65535], and most likely another one each time that the controller is started: it stays
  // the lower half of all epochs, the upper being the number of restarts.
  std::uint32_t epoch = 1;
};

class ControllerCore {
 public:
  struct Output {
    std::string to;  // identity
    Message message;
  };

  // Throws kInvalid unless size >= 1 and lease > 0.
  ControllerCore(const ControllerConfig& config, TimePoint now);

  // `from` is the sender's identity, as the transport tells it.
  void on_message(const std::string& from, const Message& message, TimePoint now);
  // To be called at next_timer(). A call that comes late because the controller itself was held up
  // extends every lease by as much.
  void on_time(TimePoint now);
  TimePoint next_timer() const noexcept {
    const TimePoint due = due_.empty() ? TimePoint::max() : due_.begin()->first;
    return std::min({next_scan_, matchmaker_.hold_until(), due});
  }
  // This controller takes the place of another, whose last known epoch is `last`; 0: of none.
  void succeed(std::uint32_t last, TimePoint now);
  // `rank` is dead: somebody who knows says so. Does nothing if it has ended in good order.
  void report_lost(int rank, const std::string& why);

  // What is to be sent, in order; each is handed out once.
  std::vector<Output> take_output();

  int joined() const noexcept { return joined_; }
  // Messages of those who were not admitted, or whose hello was refused.
  std::uint64_t refused() const noexcept { return refused_; }
  // Of those, how many have neither left nor died.
  int live() const noexcept { return live_; }
  bool is_lost(int rank) const {
    return members_.at(static_cast<std::size_t>(rank)).state == State::kDead;
  }
  std::uint32_t epoch() const noexcept { return config_.epoch; }
  const GroupTable& groups() const noexcept { return groups_; }
  const Matchmaker& matchmaker() const noexcept { return matchmaker_; }
  // Of the groups so far.
  GroupMetrics metrics() const;

 private:
  enum class State : std::uint8_t { kAbsent, kLive, kDeparted, kDead };  // as RankReport::State
  // What of a rank waits for its last group to be committed: the answer to kDone, or what it asked
  // for next.
  enum class Held : std::uint8_t { kNothing, kDone, kReady, kLeave };
  struct LaneState {
    std::uint64_t seq = 0;         // of the latest request
    std::optional<Message> reply;  // to it, once there is one
  };
  struct Announced {
    std::int64_t step;
    TimePoint expected;
    Duration round_trip;
    Duration ahead;               // before `expected`, beside the round trip, it is in the queue
    std::optional<Message> told;  // its group, once it has one
  };
  struct Member {
    State state = State::kAbsent;
    std::string identity;
    TimePoint heard{};
    LaneState lanes[kLanes];  // by Lane
    std::string progress;     // as its latest sign of life told it
    TimePoint progress_time{};
    bool trains = true;        // groups wait for it: it has not left the grouping, or not come yet
    bool gave = false;         // has been ready with what counts, since it came
    ReadyNote note;            // of its last kReady or kFail
    std::int64_t version = 0;  // of the average of its last group
    Held held = Held::kNothing;
    std::optional<Announced> announced;  // it has, and has not said yet that it is ready
    Duration error{};                    // of what it announces, of late; zero: not known
    TimePoint due = TimePoint::max();    // it is in due_
    bool undecided = false;              // see decide_begin()
    bool recalled = false;               // it has told what it remembers of the controller before
    bool grouped = false;                // it has asked for something on the group's lane
    std::string waits_for;               // key of a get that has no answer yet
    std::string why;                     // it is dead
  };
  struct Loss {
    int rank;
    std::string why;
  };
  struct Dump {
    std::string name;
    int rank;  // who makes it
    TimePoint asked;
  };

  Member& member(int rank) { return members_[static_cast<std::size_t>(rank)]; }
  void hello(const std::string& from, const Message& message, TimePoint now);
  void begin_epoch_after(std::uint32_t last);
  void tell_epoch(int rank);
  void recall(int rank, const Message& message);
  bool remembers_all();
  static constexpr const char* kDidNotComeBack =
      "it did not come back to the restarted controller in time";
  static constexpr int kLeasesToCome = 2;
  void give_up_absent();
  void heartbeat(int rank, const Message& message);
  void exited(int rank, const Message& message);
  void request(int rank, Lane lane, const Message& message);
  void store_request(int rank, const Message& message);
  void set(const std::string& key, std::string value);
  void add(int rank, const Message& message);
  void group_request(int rank, const Message& message);
  void report(int rank, const Message& message);
  void collect(int rank, const Message& message);
  void pass_on_calls(int rank, const Message& message);
  void adopt(int rank, const Message& message);
  void leave_behind(const GroupTag& tag, const std::vector<int>& known,
                    const std::vector<std::int32_t>& named);
  bool take_note(int rank, const Message& message);
  bool waits_for_last_group(int rank, const Message& message, Held held);
  void ready(int rank, const Message& message);
  void enqueue(int rank);
  void done(int rank, const Message& message);
  void failed(int rank, const Message& message);
  void leave(int rank, const Message& message);
  // Takes `rank` out of the queue, and out of its group unless it keeps the result.
  void withdraw(int rank);
  // `rank` can form no more groups: it is gone, or has left them.
  void stop_training(int rank, AbortReason why);
  void give_up_strangers();
  void release(int rank, const GroupTag& tag);
  bool begins_as_announced(int rank, const Message& message);
  void ready_as_announced(int rank, const Message& message);
  void begin(int rank, const Message& message);
  void decide_begin(int rank);
  void refuse_to_begin(int rank, const GroupTag& tag);
  void confirm(int rank);
  void begin_attempt(int rank);
  void take_announcement(int rank, const Message& message);
  void forget_announcement(int rank);
  void set_due(int rank, TimePoint when);
  void serve_due();
  Duration patience_with(int rank) const;
  // `rank` is taken out of its group, and the others are told that they wait for it in vain.
  void drop(int rank, AbortReason why);
  void tell_dropped(int rank);
  void form_groups();
  void announce(const Verdict& verdict);
  void tell_group(const GroupTag& tag, const std::vector<int>& members);
  void announce(std::vector<SupplyDesk::Answer> answers);

  void send(const std::string& to, Message message);
  void answer(int rank, Lane lane, Message message);
  void answer_error(int rank, Lane lane, ErrorCode code, const std::string& why);

  ControllerConfig config_;
  TimePoint now_;  // of the latest event
  TimePoint next_scan_;
  std::vector<Member> members_;
  std::unordered_map<std::string, int> rank_of_;  // by identity
  int joined_ = 0;
  std::uint64_t refused_ = 0;
  int live_ = 0;
  std::vector<Loss> losses_;
  std::deque<Dump> dumps_;  // of late

  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::vector<int>>
      waiters_;  // ranks, by key; some may have given up

  std::optional<Grouping> grouping_;  // what the first ready rank asked for
  int grouping_of_ = -1;              // that rank
  Matchmaker matchmaker_;
  GroupTable groups_;
  MetricsKeeper metrics_;
  TimePoint rebuilt_ = TimePoint::max();   // until when ranks of the epoch before may come back
  bool remembers_ = true;                  // what the controller before knew, or there was none
  TimePoint gathered_ = TimePoint::max();  // until when ranks that have not come yet count
  SupplyDesk supplies_;
  // When what ranks announced is due: first to be in the queue, then to begin.
  std::set<std::pair<TimePoint, int>> due_;

  std::vector<Output> output_;
};

}  // namespace motley
