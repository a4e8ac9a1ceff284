// comm/group/matchmaker.h: who averages with whom. Arrivals in, groups out; no I/O, and the time is
// a parameter.
//
// First come, first served: the first `group_size` ranks that are ready form a group. When fewer
// than `group_size` ranks can come at all, the group is all that are left; one that is alone goes
// on alone. Whoever is ready is therefore served as soon as enough of the others are, and nobody
// waits for a rank that is dead or has left.
//
// Workers of equal speed that averaged together are ready together again, and would do so for ever,
// apart from the rest. So partners other than those of the last time come first. Where the same
// group would form a third time in a row, it is held for an eighth of a step, in case another rank
// comes; the next time for two eighths, and so on to half a step. No slow worker is waited for: the
// hold ends, whoever comes or not.
#pragma once

#include <deque>
#include <unordered_map>
#include <vector>

#include "comm/clock.h"

namespace motley {

class Matchmaker {
 public:
  static constexpr int kHoldsPerStep = 8;  // a step: from the head's last group to its being ready
  static constexpr int kMostHolds = 4;

  // `rank` waits for a group, behind those who wait already. It must not be waiting.
  void ready(int rank, TimePoint now);
  // `rank` waits no more: it is dead, has left or has withdrawn. Does nothing if it did not wait.
  void remove(int rank);
  // The next group, ascending, of which the members cease to wait; empty if more must come first,
  // or it is held.
  //   participants   ranks that wait or may still come: alive and not gone
  std::vector<int> next(int group_size, int participants, TimePoint now);
  // When a hold ends and next() may find a group though nobody came; TimePoint::max() without one.
  TimePoint hold_until() const noexcept { return hold_until_; }

  int waiting() const noexcept { return static_cast<int>(queue_.size()); }

 private:
  struct Waiting {
    int rank;
    TimePoint since;
  };
  struct Last {  // the last group of a rank
    std::vector<int> members;
    TimePoint formed{};
    int times = 0;  // in a row
  };

  Duration hold(const Waiting& head, const std::vector<int>& members) const;
  std::vector<int> candidates(int wanted) const;

  std::deque<Waiting> queue_;
  std::unordered_map<int, Last> last_;  // by rank
  TimePoint hold_until_ = TimePoint::max();
};

}  // namespace motley
