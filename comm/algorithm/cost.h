// comm/algorithm/cost.h: how long a schedule takes on a topology, without running it.
//
//   const Algorithm& ring = algorithms_of(CallKind::kAllReduce)[1];
//   Duration time = cost(ring, {.kind = CallKind::kAllReduce, .bytes = 1 << 20}, topology);
//
// The model is that of topology.h, which the simulator shares (traffic.h), with the executor's
// rules: steps start by the rules of schedule.h with a window of 8, four pieces run at a time,
// sends finish at once, a rank reduces and copies at the topology's speeds, one chunk after
// another, and takes a quarter of TopologyCosts::per_call for each that goes without a message.
// A reduction without a message reads what it adds first, at the speed of a copy: of a message that
// is priced as taking it in. Within a host a receiver copies what comes before its turn once more,
// where all ranks are walked through.
//
// If all ranks together have at most kExactSteps steps (all families do up to 64 ranks; trees,
// halving-doubling and barriers to 2,048 and more), all are walked through, and what is said is
// what the simulator takes where reductions and copies take no time; of many pieces a few are
// walked through, and each of the others counts as long as the last of those. Else a few ranks are,
// each as if the others were just as far and all in one piece. Where those few differ, which says
// that data passes near and far ranks by turns, all ranks walk through their first steps, and the
// others count as long as the last of those.
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
  std::size_t segment_bytes = 0;  // of the longest message; 0: the call is not cut into pieces
};

// Time from the start, at all ranks at once, to the end of the last. The family must be one that
// check() proves.
//   cost  about 0.2 us per step walked through
Duration cost(const Algorithm& family, const Workload& work, const Topology& topology);

}  // namespace motley
