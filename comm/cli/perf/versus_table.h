// What --versus prints once all turns are over.
#pragma once

#include "comm/cli/perf/comparison.h"

namespace motley::perf {

// For each collective, number of ranks and place a table of times and ratios by size.
void print_tables(const Comparison& comparison);

// One line for each goal: at how many points it is met, and the worst.
void print_goals(const Comparison& comparison);

}  // namespace motley::perf
