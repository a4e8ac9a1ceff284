// What the buffers of a cell hold, and how many elements of a result are wrong. Small whole
// numbers, so that sums are exact in most types and every rank knows all results without being
// told.
#pragma once

#include "comm/cli/perf/cell.h"
#include "comm/view.h"

namespace motley::perf {

// What `rank` of `ranks` passes in; `in` has extent().in elements.
void fill(const Cell& cell, int rank, int ranks, View in);

// How many elements of the result `out` of `rank` are wrong. Floating-point sums that are too long
// to be exact may be off by as much as rounding each partial sum can make them.
std::size_t wrong(const Cell& cell, int rank, int ranks, ConstView out);

}  // namespace motley::perf
