// motley-perf --versus: the same cells on Motley and on every peer that is there, in turns.
#pragma once

#include <string>
#include <vector>

#include "comm/cli/perf/plan.h"

namespace motley::perf {

struct VersusOptions {
  std::vector<int> ranks = {2, 4, 8};
  int rounds = 3;  // turns of all competitors over each block of cells
  // Each competitor's run of a block may take so long; then it is killed, and the cells that it has
  // not measured by then count as not run.
  Duration block_limit = seconds(600);
  std::string self;   // path of motley-perf
  std::string peers;  // folder of the programs for other libraries
  std::string json;   // file for every reading as JSON lines; empty: none
};

// Prints blocks as they are measured, then the tables and what is reached of goal.h. A block is one
// collective, on one number of ranks, of small sizes (up to 64 KiB) or of large ones, in every
// place that the plan asks for; the placement probe stands beside it. The plan's buffers do not
// matter: ours are measured with private and allocated ones, a peer's are private. Returns how many
// of our own runs failed or had a wrong result.
int versus(const Plan& plan, const VersusOptions& options);

}  // namespace motley::perf
