#include "comm/cli/perf/cell.h"

namespace motley::perf {

bool takes_blocks(CallKind kind) noexcept {
  return kind == CallKind::kReduceScatter || kind == CallKind::kScatter ||
         kind == CallKind::kAllToAll || kind == CallKind::kAllToAllV;
}

bool gives_blocks(CallKind kind) noexcept {
  return kind == CallKind::kAllGather || kind == CallKind::kAllGatherV ||
         kind == CallKind::kGather || kind == CallKind::kAllToAll || kind == CallKind::kAllToAllV;
}

bool has_blocks(CallKind kind) noexcept { return takes_blocks(kind) || gives_blocks(kind); }

bool has_places(CallKind kind) noexcept {
  return kind == CallKind::kAllReduce || kind == CallKind::kAllGather ||
         kind == CallKind::kAllGatherV || kind == CallKind::kAllToAll ||
         kind == CallKind::kAllToAllV;
}

std::size_t block_count(const Cell& cell, int ranks) {
  return has_blocks(cell.kind) ? cell.count / static_cast<std::size_t>(ranks) : cell.count;
}

Extent extent(const Cell& cell, int rank, int ranks) {
  const bool is_root = rank == cell.root;
  const std::size_t block = block_count(cell, ranks);
  Extent result{.in = takes_blocks(cell.kind) ? cell.count : block,
                .out = gives_blocks(cell.kind) ? cell.count : block};
  if (cell.kind == CallKind::kScatter && !is_root) result.in = 0;
  if (cell.kind == CallKind::kGather && !is_root) result.out = 0;
  if (cell.kind == CallKind::kReduce && !is_root) result.out = 0;
  if (!takes_blocks(cell.kind) && gives_blocks(cell.kind)) {
    result.in_place = static_cast<std::size_t>(rank) * block;
  }
  return result;
}

double bus_factor(CallKind kind, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (kind == CallKind::kAllReduce) return 2 * others;
  return has_blocks(kind) ? others : 1;
}

}  // namespace motley::perf
