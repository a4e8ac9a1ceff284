// comm/group/matchmaker.h: who averages with whom. Arrivals in, groups out; no time, no network.
//
// First come, first served: the first `group_size` ranks that are ready form a group. When fewer
// than `group_size` ranks can come at all, the group is all that are left; one that is alone goes
// on alone. Whoever is ready is therefore served as soon as enough of the others are, and nobody
// waits for a rank that is dead or has left.
#pragma once

#include <deque>
#include <vector>

namespace motley {

class Matchmaker {
 public:
  // `rank` waits for a group, behind those who wait already. It must not be waiting.
  void ready(int rank);
  // `rank` waits no more: it is dead, has left or has withdrawn. Does nothing if it did not wait.
  void remove(int rank);
  // The next group, ascending, of which the members cease to wait; empty if more must come first.
  //   participants   ranks that wait or may still come: alive and not gone
  std::vector<int> next(int group_size, int participants);

  int waiting() const noexcept { return static_cast<int>(queue_.size()); }

 private:
  std::deque<int> queue_;
};

}  // namespace motley
