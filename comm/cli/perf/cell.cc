#include "comm/cli/perf/cell.h"

namespace motley::perf {

Extent extent(const Cell& cell, int ranks) {
  (void)ranks;
  return {cell.count, cell.count};
}

bool has_blocks(CallKind kind) noexcept {
  (void)kind;
  return false;
}

double bus_factor(CallKind kind, int ranks) {
  return kind == CallKind::kAllReduce ? 2.0 * (ranks - 1) / ranks : 1;
}

}  // namespace motley::perf
