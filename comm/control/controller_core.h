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
//               one kCommit, kSolo or error, unless its rank dies, leaves or withdraws it
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm/clock.h"
#include "comm/control/message.h"
#include "comm/control/supply_desk.h"
#include "comm/error.h"
#include "comm/group/group_table.h"
#include "comm/group/matchmaker.h"

namespace motley {

struct ControllerConfig {
  int size = 1;
  std::string token;
  Duration lease = seconds(1.5);
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
  TimePoint next_timer() const noexcept { return std::min(next_scan_, matchmaker_.hold_until()); }
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
  const GroupTable& groups() const noexcept { return groups_; }
  const Matchmaker& matchmaker() const noexcept { return matchmaker_; }

 private:
  enum class State : std::uint8_t { kAbsent, kLive, kDeparted, kDead };  // as RankReport::State
  struct LaneState {
    std::uint64_t seq = 0;         // of the latest request
    std::optional<Message> reply;  // to it, once there is one
  };
  struct Member {
    State state = State::kAbsent;
    std::string identity;
    TimePoint heard{};
    LaneState lanes[kLanes];  // by Lane
    std::string progress;     // as its latest sign of life told it
    TimePoint progress_time{};
    bool trains = true;     // has not left the grouping
    std::string waits_for;  // key of a get that has no answer yet
    std::string why;        // it is dead
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
  void ready(int rank, const Message& message);
  void ended(int rank, const Message& message);
  // Takes `rank` out of the queue and out of its group.
  void withdraw(int rank);
  // `rank` can form no more groups: it is gone, or has left them.
  void stop_training(int rank);
  void form_groups();
  void announce(const Verdict& verdict);
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

  int participants_;
  int group_size_ = 0;      // what the first ready rank asked for; 0: none yet
  int group_size_of_ = -1;  // that rank
  Matchmaker matchmaker_;
  GroupTable groups_;
  SupplyDesk supplies_;

  std::vector<Output> output_;
};

}  // namespace motley
