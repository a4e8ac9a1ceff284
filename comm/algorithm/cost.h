// comm/algorithm/cost.h: how long a schedule takes on a topology, without running it.
//
//   const Algorithm& ring = algorithms_of(CallKind::kAllReduce)[1];
//   Duration time = cost(ring, {.kind = CallKind::kAllReduce, .bytes = 1 << 20}, topology);
//
// The model is the simulator's (comm/transport/sim.h): a message waits for the sender's port, takes
// its bytes over the link's bandwidth plus the link's latency, and waits for the receiver's port.
// Steps start by the rules of schedule.h with a window of 8, sends finish at once, and a rank
// reduces and copies at Topology's speed, one chunk after another. The buffer is not cut into
// pieces: where the executor cuts it, pieces overlap, and long messages take less than is said here
// (a tree's most of all).
//
// If all ranks together have at most kExactSteps steps (all families do up to 64 ranks; trees,
// halving-doubling and barriers to 2,048 and more), all are walked through, and what is said is
// what the simulator takes. Else a few ranks are, each as if the others were just as far: right
// where ranks are alike, and otherwise as if the links of the slowest of those few were everywhere.
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/algorithm/schedule.h"
#include "comm/clock.h"
#include "comm/topology.h"

namespace motley {

inline constexpr std::int64_t kExactSteps = 1 << 17;

// What is to be priced.
struct Workload {
  CallKind kind = CallKind::kAllReduce;
  std::size_t bytes = 0;  // of the buffer, or of all blocks of a rank together
  int root = 0;
};

// Time from the start, at all ranks at once, to the end of the last. The family must be one that
// check() proves.
//   cost  about 0.2 us per step walked through
Duration cost(const Algorithm& family, const Workload& work, const Topology& topology);

}  // namespace motley
