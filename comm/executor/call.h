// comm/executor/call.h: what one call is to do.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/call_kind.h"
#include "comm/clock.h"
#include "comm/device.h"
#include "comm/dtype.h"
#include "comm/group.h"
#include "comm/topology.h"
#include "comm/view.h"

namespace motley {

class Team;

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
  double weight = 1;                   // of this rank's input, if op is kWeightedSum
  bool deterministic = false;          // the family is an ordered one
  int root = 0;                        // index in the group
  int algorithm = 0;                   // index in the list of families of `kind`
  Team* team = nullptr;                // that runs it as a whole
  const Topology* topology = nullptr;  // of the group; read while the call starts
  std::size_t segment_bytes = 128 << 10;
  // Of calls on device memory:
  bool direct = false;                    // its messages are there, too, and its chunks
  StreamRef stream{};                     // what is in it comes first
  int staging_slots = 4;                  // pieces under way at once
  std::size_t staging_bytes = 256 << 20;  // of pinned memory; one piece may need more
  Duration timeout{};
  TimePoint started{};  // this and the next are set when it starts
  TimePoint deadline{};

  bool on_device() const noexcept {
    return in.memory == Memory::kDevice || out.memory == Memory::kDevice;
  }
  // The elements that all members must agree on: of the buffer, or of all blocks of a rank
  // together.
  std::size_t agreed_count() const noexcept {
    const auto p = static_cast<std::size_t>(group == nullptr ? 1 : group->size());
    if (varies(kind)) return 0;
    if (kind == CallKind::kGather) return p * in.count;
    if (kind == CallKind::kScatter) return p * out.count;
    return std::max(in.count, out.count);
  }
};

// Whether two buffers share an element.
inline bool overlap(ConstView a, ConstView b) noexcept {
  return a.count != 0 && b.count != 0 && a.data < b.data + b.size_bytes() &&
         b.data < a.data + a.size_bytes();
}

// What the elements of a call are worked on in, rounded to their own type in the end. A 16-bit
// float has no room for the terms of an average, and its sums depend on where they are rounded.
inline DType work_dtype(const Call& call) noexcept {
  const bool is_short = is_floating(call.out.dtype) && size_bytes(call.out.dtype) == 2;
  const bool exact =
      call.deterministic || call.op == ReduceOp::kAverage || call.op == ReduceOp::kWeightedSum;
  return reduces(call.kind) && is_short && exact ? DType::kFloat32 : call.out.dtype;
}

}  // namespace motley
