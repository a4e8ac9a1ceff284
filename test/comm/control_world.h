// A job in a box: one controller and its ranks as pure state machines, joined by messages that the
// test delivers, delays, repeats or loses as it likes. Each rank makes some steps, averages after
// each, and leaves.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "comm/control/client_core.h"
#include "comm/control/controller_core.h"

namespace motley::test {

struct Packet {
  int rank;  // its sender or receiver; the other end is the controller
  bool to_controller;
  Message message;
};

// What became of one step of one rank.
struct Outcome {
  int step;
  bool solo;
  GroupTag tag;  // if not solo
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

struct Rank {
  enum Phase { kIdle, kReady, kAveraging, kReported, kWithdrawing, kLeaving, kFinished, kDead };

  ClientCore client;
  int steps_left;
  Phase phase = kIdle;
  int step = 0;
  GroupTag tag;       // kAveraging, kReported
  TimePoint since{};  // when the phase began
  bool withdrew = false;
  std::vector<Outcome> outcomes;
  std::uint64_t history = 0;  // of all that happened to it, as a hash

  bool settled() const { return phase == kFinished || phase == kDead; }
};

// An attempt of a group. Its members can complete it only once all have begun it.
struct Attempt {
  std::vector<int> members;
  std::set<int> began;
  std::set<int> completed;
  bool failed = false;  // at one member
};

class World {
 public:
  World(int size, int group_size, int steps, Duration lease);

  // --- things that may happen; each may_ says whether it can now ---------------------------------
  void deliver(const Packet& packet);
  bool may_complete(int rank) const;
  void complete(int rank);  // the all-reduce succeeds at this rank
  bool may_fail(int rank) const { return at(rank).phase == Rank::kAveraging; }
  // A member of its group has failed, withdrawn or died: the all-reduce may fail here, too.
  bool is_broken(int rank) const;
  void fail(int rank);
  bool may_withdraw(int rank) const;
  void withdraw(int rank);
  void die(int rank);          // says no more; nobody knows yet
  void learn_death(int rank);  // the controller is told
  void pass_time(TimePoint now);

  // Messages sent since the last call.
  std::vector<Packet> take_packets();

  // --- what must hold
  // ------------------------------------------------------------------------------ Empty, or what
  // is wrong with what has happened so far.
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
  void react(int rank);  // to an answer that has arrived
  void go_on(int rank);  // starts the next step, or leaves
  void request(int rank, Rank::Phase phase, Message message);
  void collect();
  void note(std::uint64_t& history, const void* data, std::size_t size);
  void note(std::uint64_t& history, const Message& message);

  int group_size_;
  TimePoint now_{seconds(100)};
  ControllerCore core_;
  std::vector<Rank> ranks_;
  std::map<GroupTag, Attempt> attempts_;
  std::vector<Packet> packets_;
  std::uint64_t controller_history_ = 0;
};

}  // namespace motley::test
