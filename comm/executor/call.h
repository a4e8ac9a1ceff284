// comm/executor/call.h: what one call is to do.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/call_kind.h"
#include "comm/clock.h"
#include "comm/dtype.h"
#include "comm/group.h"
#include "comm/topology.h"
#include "comm/view.h"

namespace motley {

struct Call {
  CallKind kind = CallKind::kBarrier;
  const Group* group = nullptr;  // its members; outlives the call
  std::uint32_t number = 0;      // of the call in the group
  // The same memory, or one is a block of the other, or they do not overlap. What has no part in
  // the call on this rank is empty, but of the same dtype.
  ConstView in;
  View out;
  // all_gather_v, all_to_all_v: the elements of each block of `in` and of `out`, by rank.
  std::vector<std::size_t> in_counts;
  std::vector<std::size_t> out_counts;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;                        // index in the group
  int algorithm = 0;                   // index in the list of families of `kind`
  const Topology* topology = nullptr;  // of the group, for schedules; outlives the call
  std::size_t segment_bytes = 128 << 10;
  Duration timeout{};
  TimePoint started{};  // this and the next are set when it starts
  TimePoint deadline{};

  // The elements that all members must agree on.
  std::size_t agreed_count() const noexcept {
    return varies(kind) ? 0 : std::max(in.count, out.count);
  }
};

}  // namespace motley
