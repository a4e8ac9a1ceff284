// test/support/collective_shape.h: a call of any kind, made of buffers that are parts of one.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "comm/call_kind.h"
#include "comm/communicator.h"
#include "comm/kernel/ops.h"
#include "comm/view.h"
#include "test/support/elements.h"

namespace motley::test {

struct Shape {
  CallKind kind;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::size_t n = 1;
  int root = 0;  // index in the group
  bool in_place = false;
};

inline std::string text(const Shape& s) {
  return fmt::format("{} of {} {}, {}{}", name(s.kind), s.n, name(s.dtype), name(s.op),
                     s.in_place ? ", in place" : "");
}

// What one member has of a call: `in` and `out` as parts of one buffer.
struct Part {
  std::size_t elements = 0;
  std::size_t in_first = 0, in_count = 0;
  std::size_t out_first = 0, out_count = 0;
  std::vector<std::size_t> in_counts, out_counts;
};

inline std::size_t sum(std::span<const std::size_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

// The counts of blocks that members have for each other, where they vary. In place a member sends
// another as much as it gets from it.
inline std::size_t block_count(const Shape& s, std::size_t from, std::size_t to) {
  return s.n + (s.in_place ? from + to : from + 2 * to) % 3;
}

// What member `me` of p has: `in` and `out` one after another, or as the kind wants them in place.
inline Part part_of(const Shape& s, std::size_t p, std::size_t me) {
  Part part{.in_count = s.n, .out_count = s.n};
  std::size_t before = me * s.n;  // the blocks of the members before this one
  switch (s.kind) {
    case CallKind::kReduceScatter:
    case CallKind::kScatter:
      part.in_count = p * s.n;
      break;
    case CallKind::kAllGather:
    case CallKind::kGather:
      part.out_count = p * s.n;
      break;
    case CallKind::kAllToAll:
      part.in_count = part.out_count = p * s.n;
      break;
    case CallKind::kAllGatherV:
      for (std::size_t i = 0; i < p; ++i) part.out_counts.push_back(block_count(s, i, 0));
      part.in_count = part.out_counts[me];
      part.out_count = sum(part.out_counts);
      before = sum(std::span(part.out_counts).first(me));
      break;
    case CallKind::kAllToAllV:
      for (std::size_t i = 0; i < p; ++i) part.in_counts.push_back(block_count(s, me, i));
      for (std::size_t i = 0; i < p; ++i) part.out_counts.push_back(block_count(s, i, me));
      part.in_count = sum(part.in_counts);
      part.out_count = sum(part.out_counts);
      break;
    default:
      break;
  }
  part.elements = std::max(part.in_count, part.out_count);
  const bool scatters = s.kind == CallKind::kReduceScatter || s.kind == CallKind::kScatter;
  const bool gathers = s.kind == CallKind::kAllGather || s.kind == CallKind::kAllGatherV ||
                       s.kind == CallKind::kGather;
  if (s.kind == CallKind::kBroadcast) return part;
  if (!s.in_place) {
    part.out_first = part.in_count;
    part.elements = part.in_count + part.out_count;
  } else if (scatters) {
    part.out_first = before;
  } else if (gathers) {
    part.in_first = before;
  }
  return part;
}

inline Request start(Communicator& comm, const Shape& s, const Part& part, View all,
                     const CallOptions& options) {
  const ConstView in = all.slice(part.in_first, part.in_count);
  const View out = all.slice(part.out_first, part.out_count);
  const int root = (options.group == nullptr ? comm.world() : *options.group).rank_at(s.root);
  switch (s.kind) {
    case CallKind::kAllReduce:
      return comm.all_reduce(in, out, s.op, options);
    case CallKind::kReduce:
      return comm.reduce(in, out, s.op, root, options);
    case CallKind::kReduceScatter:
      return comm.reduce_scatter(in, out, s.op, options);
    case CallKind::kAllGather:
      return comm.all_gather(in, out, options);
    case CallKind::kAllGatherV:
      return comm.all_gather_v(in, {out, part.out_counts}, options);
    case CallKind::kGather:
      return comm.gather(in, out, root, options);
    case CallKind::kScatter:
      return comm.scatter(in, out, root, options);
    case CallKind::kBroadcast:
      return comm.broadcast(out, root, options);
    case CallKind::kAllToAll:
      return comm.all_to_all(in, out, options);
    case CallKind::kAllToAllV:
      return comm.all_to_all_v({in, part.in_counts}, {out, part.out_counts}, options);
    case CallKind::kSendRecv:
    case CallKind::kBarrier:
      break;
  }
  return comm.barrier(options);
}

// Whole numbers of which sums, products and averages are exact in every type, in any order.
inline std::vector<std::byte> some_elements(std::size_t count, DType dtype, int rank) {
  std::vector<std::byte> bytes(count * size_bytes(dtype));
  constexpr int kChoice[] = {1, 2, -1, -2};
  dispatch(dtype, [&]<class T>() {
    std::vector<T> values;
    for (std::size_t i = 0; i < count; ++i) {
      const int x = kChoice[(i * 7 + static_cast<std::size_t>(rank) * 3 + i / 5) % 4];
      values.push_back(element<T>(x));
    }
    bytes = bytes_of(values);
  });
  return bytes;
}

}  // namespace motley::test
