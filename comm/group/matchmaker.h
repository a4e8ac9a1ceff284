// comm/group/matchmaker.h: who averages with whom. Arrivals in, groups out; no I/O, and the time is
// a parameter.
//
// First come, first served: whoever has waited longest is in the next group, with others that are
// ready, as soon as there are P. When fewer than P ranks can come at all, the group is all that are
// left; one that is alone goes on alone. So nobody waits for a rank that is dead or has left.
//
// Workers of equal speed that averaged together are ready together again, and would do so for ever,
// apart from the rest. So partners from other components of the SyncGraph come first. Where all
// that are ready are of one component although the graph should be connected by now, the head is
// held until one more comes, if one of another component is about to: half a step at most, half as
// long after each hold that was in vain. Slow workers are never waited for; they are bridged when
// they arrive.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/clock.h"
#include "comm/group/group_sizer.h"
#include "comm/group/sync_graph.h"
#include "comm/grouping.h"

namespace motley {

class Matchmaker {
 public:
  static constexpr double kHold = 0.5;  // of a step, to bridge components
  // Of a step, for the last of all ranks (GroupSizer), once as many have come as without them; but
  // at least so many times the coefficient of variation of their steps.
  static constexpr double kPatience = 0.1;
  static constexpr double kDeviations = 6;
  // For all to come to a training that is not the first: who does is not known before.
  static constexpr Duration kGather = std::chrono::milliseconds(50);

  // Ranks 0 … size - 1, which all train.
  explicit Matchmaker(int size);
  // Between trainings, when nobody waits. Nothing is known of the next one's steps and models.
  void use(const Grouping& grouping);

  // `rank` may be ready from now on; or no more: it is dead or has left.
  void add(int rank);
  void retire(int rank);

  struct Arrival {
    // False: it is an extra member of the next group, and nobody waits for it, whether it trains
    // or not.
    bool gives = true;
    Sketch sketch{};
    double moved = 0;
  };
  // `rank`, which trains if it gives, waits for a group, behind those who wait already. It must not
  // be waiting.
  void ready(int rank, const Arrival& arrival, TimePoint now);
  // `rank` waits no more. Does nothing if it did not wait.
  void remove(int rank);
  // The next group, ascending, of which the members cease to wait; one alone goes on alone. Empty
  // if more must come first, or it is held.
  std::vector<int> next(TimePoint now);
  // When a hold ends and next() may find a group though nobody came; TimePoint::max() without one.
  TimePoint hold_until() const noexcept { return hold_until_; }

  bool waits(int rank) const { return worker(rank).waits; }
  int waiting() const noexcept { return waiting_ + static_cast<int>(takers_.size()); }
  int training() const noexcept { return graph_.training(); }
  int group_size() const noexcept;  // now, of as many ranks as train
  // A step of `rank`: from when its groups form to when it is ready again; zero if not known yet.
  Duration step_of(int rank) const { return worker(rank).step; }
  const SyncGraph& graph() const noexcept { return graph_; }
  const GroupSizer& sizer() const noexcept { return sizer_; }
  std::uint64_t holds() const noexcept { return holds_; }
  std::uint64_t holds_in_vain() const noexcept { return holds_in_vain_; }

 private:
  static constexpr int kNobody = -1;
  struct Worker {
    int before = kNobody;  // in the queue
    int after = kNobody;
    bool waits = false;  // in the queue, or among the takers
    bool takes = false;
    bool steps = false;  // it has been in a group and is not ready again
    TimePoint since{};   // when it was ready
    TimePoint formed{};  // when its last group was
    Duration step{};
  };

  Worker& worker(int rank) { return workers_[static_cast<std::size_t>(rank)]; }
  const Worker& worker(int rank) const { return workers_[static_cast<std::size_t>(rank)]; }
  int givers() const;  // that may come
  void pick(int wanted);
  bool is_one_component();
  // Until when the group in members_ is to be held; `now` if it is not.
  TimePoint hold_to_bridge(int wanted, int givers, TimePoint now);
  TimePoint linger(int wanted, int most, TimePoint now);
  bool somebody_comes(int from_other_than, TimePoint until, TimePoint now);
  std::vector<int> form(int givers, TimePoint now);

  Grouping grouping_;
  std::vector<Worker> workers_;
  SyncGraph graph_;
  GroupSizer sizer_;
  int head_ = kNobody;
  int tail_ = kNobody;
  int waiting_ = 0;          // in the queue
  std::vector<int> takers_;  // those that give nothing, oldest first
  std::size_t alone_ = 0;    // so many of them go on alone: nobody gives

  std::vector<int> members_;           // picked
  std::vector<std::uint64_t> picked_;  // by component: the pick that has one of it already
  std::uint64_t picks_ = 0;
  TimePoint hold_until_ = TimePoint::max();
  struct Hold {  // of the head that waits since then
    int head = kNobody;
    TimePoint since{};
    TimePoint until{};
    bool counted = false;
  } hold_;
  int vain_ = 0;                               // holds in a row
  bool begins_ = false;                        // a training that is not the first
  TimePoint gather_until_{};                   // of that
  int looked_at_ = -1;                         // by somebody_comes(), last
  TimePoint enough_since_ = TimePoint::max();  // there are P: of linger()
  TimePoint part_since_ = TimePoint::max();    // there are as many as if not all were to come
  std::uint64_t holds_ = 0;
  std::uint64_t holds_in_vain_ = 0;
};

}  // namespace motley
