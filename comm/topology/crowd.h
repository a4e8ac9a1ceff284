// comm/topology/crowd.h: what ranks that share the cores of a host cost each other.
//
// A message there waits until its receiver has a core, for which another rank must stop: how long
// depends on how many messages a rank finds at once, and so on the schedule. One exchange of two
// ranks does not tell; whole calls of several families do.
#pragma once

#include <cstddef>
#include <vector>

#include "comm/topology.h"

namespace motley {

inline constexpr int kMostCrowded = 8;  // ranks of a host of which the probe times whole calls

// What an all-reduce of all ranks of a host took.
struct CallTime {
  int algorithm = 0;  // position in algorithms_of(kAllReduce)
  std::size_t bytes = 0;
  double time = 0;  // ns
};

// `costs` with the link within a host, and the time of a turn, with which cost.h says best what
// calls of `ranks` ranks on `cores` cores took, in pieces of `segment_bytes`: the least sum of
// squared logarithms of price over time that a search downhill finds. Short calls say what messages
// and turns take, then the long ones say the speed.
//   cost  some 50 ms for 8 ranks, 0.3 s for 16
TopologyCosts fit_crowd(const TopologyCosts& costs, int ranks, int cores,
                        const std::vector<CallTime>& times, std::size_t segment_bytes);

}  // namespace motley
