// A job in a box: one controller and its ranks as pure state machines, joined by messages that the
// test delivers, delays, repeats or loses as it likes. Each rank makes some steps, averages after
// each, and leaves. The controller may be restarted at any time.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "comm/control/client_core.h"
#include "comm/control/controller_core.h"
#include "comm/control/group_note.h"

namespace motley::test {

struct Packet {
  int rank;  // its sender or receiver; the other end is the controller
  bool to_controller;
  Message message;
};

// What became of one step of one rank.
struct Outcome {
  enum Kind { kAveraged, kSolo, kAway, kError };
  int step;
  Kind kind;
  GroupTag tag;  // kAveraged: the attempt that made the average, whoever handed it on
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

struct Rank {
  enum Phase {
    kStepping,
    kReady,
    kAveraging,
    kReported,   // that it failed
    kHandingOn,  // its last average, to others of that group
    kWithdrawing,
    kLeaving,
    kFinished,
    kDead
  };

  ClientCore client;
  int steps_left;
  Phase phase = kStepping;
  int step = 0;
  bool gives = true;
  GroupTag tag;       // kAveraging, kHandingOn, kReported: the attempt
  GroupTag open;      // the last group that is done here, until it is known to be committed
  GroupTag result;    // the attempt whose average this rank took last
  TimePoint since{};  // when the phase began
  bool withdrew = false;
  int announced = 0;              // the step, until it is ready with it
  std::optional<GroupTag> begun;  // said, of a group that was announced, and not asked about since
  std::string error;              // the answer that is none of those expected
  std::vector<Outcome> outcomes;
  std::uint64_t history = 0;  // of all that happened to it, as a hash

  bool was_lost = false;  // to a controller that is no more; see violation()
  bool settled() const { return phase == kFinished || phase == kDead; }
};

// An attempt of a group. Its members can complete it only once all have begun it.
struct Attempt {
  std::vector<int> members;
  int donor = -1;
  std::vector<int> keepers;
  std::set<int> began;
  std::set<int> completed;
  bool failed = false;         // at one member
  std::set<int> told_dropped;  // those whom the controller told that another is not in it
};

class World {
 public:
  // `immediate`: steps take no time.
  World(int size, int group_size, int steps, Duration lease, bool immediate = true);

  // --- things that may happen; each may_ says whether it can now ---------------------------------
  void deliver(const Packet& packet);
  void end_step(int rank);  // of kStepping
  bool may_announce(int rank) const;
  // The step that it is making.
  void announce(int rank, Duration eta, Duration round_trip, Duration ahead = {});
  bool all_began(int rank) const;  // the attempt that it is in
  bool may_complete(int rank) const;
  void complete(int rank);  // the all-reduce succeeds at this rank
  bool may_fail(int rank) const { return runs(rank) && !waits_for_word(rank); }
  // A member of its group has failed, withdrawn or died: the all-reduce may fail here, too.
  bool is_broken(int rank) const;
  // It knows: by a failure of another, or by the controller's word.
  bool is_told(int rank) const;
  void fail(int rank);
  bool may_withdraw(int rank) const;
  void withdraw(int rank);
  // The controller is silent: it makes this step alone.
  bool may_go_alone(int rank) const;
  void go_alone(int rank);
  void die(int rank);          // says no more; nobody knows yet
  void learn_death(int rank);  // the controller is told
  void pass_time(TimePoint now);
  void repeat_requests(int rank);                                // as time would
  enum class Successor : std::uint8_t { kRestarted, kStandby };  // which has heard of its epoch
  void restart_controller(Successor successor = Successor::kRestarted);

  // From now on what the controller is told is kept, and what it said: for replay().
  void keep_log() { keeps_log_ = true; }
  // Tells another controller, begun as this one was, all that this one was told. Empty, or what it
  // said otherwise.
  std::string replay() const;

  // Messages sent since the last call.
  std::vector<Packet> take_packets();

  // --- what must hold ----------------------------------------------------------------------------
  // Empty, or what is wrong with what has happened so far.
  std::string violation() const;
  // Empty, or what the controller remembers although everybody is gone and it knows.
  std::string leftovers() const;
  // No rank waits any more.
  bool settled() const;
  std::string to_text() const;

  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const Rank& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const ControllerCore& controller() const { return core_; }
  TimePoint now() const { return now_; }
  // Two worlds with equal hashes have been through the same, up to the order of independent events.
  std::uint64_t hash() const;

 private:
  bool runs(int rank) const {
    return at(rank).phase == Rank::kAveraging || at(rank).phase == Rank::kHandingOn;
  }
  void react(int rank);  // to an answer that has arrived
  void take_dropped(int rank);
  bool take_announced(int rank);
  bool waits_for_word(int rank) const;  // whether it is still in the group that was announced
  bool take_replacement(int rank);
  void begin(int rank, const Message& reply);
  void took(int rank, Outcome::Kind kind, const GroupTag& result);
  void go_on(int rank);  // starts the next step, or leaves
  void ask(int rank);    // for the next group, or to leave
  void request(int rank, Rank::Phase phase, Message message);
  void name_open(int rank, Message& message) const;
  void collect();
  void note(std::uint64_t& history, const void* data, std::size_t size);
  void note(std::uint64_t& history, const Message& message);

  ControllerConfig config_;
  int group_size_;
  bool immediate_;
  TimePoint now_{seconds(100)};
  ControllerCore core_;
  std::vector<Rank> ranks_;
  std::map<GroupTag, Attempt> attempts_;
  std::vector<Packet> packets_;
  std::uint64_t controller_history_ = 0;
  // What the controller was told since it was started, and what it said.
  struct Told {
    enum Kind { kMessage, kTime, kDeath } kind;
    TimePoint now;
    int rank = -1;
    Message message{};
  };
  void tell(Told told);
  static void tell(ControllerCore& core, const Told& told);
  bool keeps_log_ = false;
  TimePoint started_{};
  std::uint32_t succeeded_ = 0;  // the epoch of which it had heard then; 0: none
  std::vector<Told> told_;
  std::vector<ControllerCore::Output> said_;
};

}  // namespace motley::test
