// comm/algorithm/traffic.h: when messages leave and arrive on a topology: the model of topology.h,
// which cost.h and the simulator share.
#pragma once

#include <vector>

#include "comm/clock.h"
#include "comm/topology.h"

namespace motley {

class Traffic {
 public:
  // `topology` must outlive it. Times count from a common start.
  explicit Traffic(const Topology& topology);

  // A message is posted now. When its last byte reaches the receiver, to wait for its turn there.
  Duration send(int from, int to, double bytes, Duration now);
  // The last byte of a message has come now. When its receiver turns to it: now, unless its core
  // is busy. Ask again then: whatever the receiver does first comes first.
  Duration turn(int from, int to, Duration now) const;
  // It does so now. When the message is taken in: now, if the port was free.
  Duration take_in(int from, int to, double bytes, Duration now);
  // A rank begins to reduce or copy as soon as it can, for so long. When it ends.
  Duration work(int rank, Duration time, Duration now);

 private:
  static constexpr std::size_t kMostInTurn = 16;  // more ranks of a host ask too often

  // When a core can work for a rank: at once for that which it worked for last, else after a turn.
  Duration free_for(int core, int rank) const;

  // The same of whatever a rank does on a core.
  Duration on_core(int rank, Duration time, Duration now);
  // That on which a rank can go on first; of several, that which has rested least.
  int core_for(int rank, Duration ready) const;
  // The end of what keeps something busy for so long, from now or the end of what keeps it so.
  Duration occupy(Duration& free, Duration time, Duration now) {
    return free = (free > now ? free : now) + time;
  }
  Duration free(int what) const { return free_[static_cast<std::size_t>(what)]; }
  Duration& free(int what) { return free_[static_cast<std::size_t>(what)]; }

  const Topology* topology_;
  std::vector<Duration> free_;    // since when each port, core and wire is free
  std::vector<Duration> worked_;  // by rank: the end of its last work
  std::vector<int> served_;       // by core: the rank that it worked for last, or -1
};

}  // namespace motley
