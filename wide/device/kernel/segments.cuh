// wide/device/kernel/segments.cuh: how a few lanes add up the gradients of a slot's edges, which
// lie side by side in a batch by feature. Always in the same order, whatever the grid.
#pragma once

#include "wide/device/kernel/rows.cuh"
#include "wide/fwfm.h"

namespace motley::wide {

// Lanes that share a segment, or a piece of one.
template <int kQuads>
constexpr int kLanesOfGroup = kQuads > 8 ? kQuads : 8;
template <int kQuads>
constexpr unsigned kGroups = kThreads / kLanesOfGroup<kQuads>;

// The lanes of this group; its warp's other groups go their own ways.
struct Group {
  unsigned rank;  // among all groups of the grid
  unsigned all;   // groups of the grid
  unsigned mask;
  int lane;
};
template <int kQuads>
__device__ Group this_group() {
  constexpr unsigned kLanes = kLanesOfGroup<kQuads>;
  const unsigned in_warp = threadIdx.x % kLanesOfWarp / kLanes;
  return {blockIdx.x * kGroups<kQuads> + threadIdx.x / kLanes, gridDim.x * kGroups<kQuads>,
          (kAllLanes >> (kLanesOfWarp - kLanes)) << (kLanes * in_warp),
          static_cast<int>(threadIdx.x % kLanes)};
}

template <int kQuads>
struct Gradient {
  float linear = 0;
  Quad factors{0.0f};  // of this lane's four
};

// What an edge's row sends to four of its slot's factors, of an FM or an FwFM (kWeighted).
template <int kQuads, bool kWeighted>
__device__ Quad scattered(const DeviceState& state, const BatchArrays& b, const DeviceSums& sums,
                          std::uint32_t edge, std::uint32_t row, int quad, const Quad& v,
                          const Sent& sent) {
  Quad gradient(0.0f);
  const auto keep = [&](int, Quad g) { gradient = g; };
  if constexpr (kWeighted) {
    const std::uint32_t field = b.edge_field[edge];
    const float own = state.shared[Layout::kPairs + field * (state.fields + 1)];
    Quad mixed = load_quad<kQuads>(
        state, sums.sums + (std::size_t{row} * state.fields + field) * state.width, quad);
    const FieldWeightedMachine<Quad> machine{.fields = 1, .factors = 4, .shared = &own};
    machine.scatter({.mixed = &mixed.v.x}, &v.v.x, 0, sent.x, sent.slope, keep);
  } else {
    Machine::Sum sum;
    sum.factors[0] = load_quad<kQuads>(state, sums.sums + std::size_t{row} * state.width, quad);
    Machine{}.scatter(sum, &v.v.x, 0, sent.x, sent.slope, keep);
  }
  return gradient;
}

// Of edges [begin, end) at the weights `v` of their slot; the same in all lanes that have a quad.
template <int kQuads, bool kWeighted>
__device__ Gradient<kQuads> gradient_of(const DeviceState& state, const BatchArrays& b,
                                        const DeviceSums& sums, const Group& group,
                                        std::uint32_t begin, std::uint32_t end, const Quad& v) {
  constexpr int kLanes = kLanesOfEdge<kQuads>;
  const int quad = group.lane % kLanes;
  Gradient<kQuads> gradient;
  for (std::uint32_t e = begin + static_cast<unsigned>(group.lane / kLanes); e < end;
       e += kLanesOfGroup<kQuads> / kLanes) {
    const std::uint32_t row = b.edge_row[e];
    const Sent sent = sent_to(sums, b, e, row);
    if (quad == 0) gradient.linear += Linear<One>::scatter(One(sent.x), One(sent.slope)).value;
    if constexpr (kQuads > 0) {
      gradient.factors =
          gradient.factors + scattered<kQuads, kWeighted>(state, b, sums, e, row, quad, v, sent);
    }
  }
#pragma unroll
  for (int step = kLanesOfGroup<kQuads> / 2; step >= kLanes; step /= 2) {
    gradient.linear = summed(gradient.linear, step, group.mask);
    if constexpr (kQuads > 0) gradient.factors = summed(gradient.factors, step, group.mask);
  }
  return gradient;
}

// The gradients of all pieces.
template <int kQuads, bool kWeighted>
__device__ void add_up_pieces(const DeviceState& state, const BatchArrays& b,
                              const DeviceSums& sums) {
  const Group group = this_group<kQuads>();
  std::uint32_t segment = 0;
  for (std::uint32_t piece = group.rank; piece < b.pieces; piece += group.all) {
    while (b.piece_begin[segment + 1] <= piece) ++segment;
    const Quad v = load_quad<kQuads>(state, all_factors_of(state, b.segment_slot[segment]),
                                     group.lane % kLanesOfEdge<kQuads>);
    const auto gradient = gradient_of<kQuads, kWeighted>(state, b, sums, group, b.piece_edge[piece],
                                                         b.piece_edge[piece + 1], v);
    float* const out = sums.partial + std::size_t{piece} * (state.width + 4);
    if (group.lane < kQuads && has_factors<kQuads>(state, group.lane))
      gradient.factors.store(out + 4 * group.lane);
    if (group.lane == 0) out[state.width] = gradient.linear;
  }
}

// Of a whole segment: from its pieces, in their order, if it has them.
template <int kQuads, bool kWeighted>
__device__ Gradient<kQuads> gradient_of_segment(const DeviceState& state, const BatchArrays& b,
                                                const DeviceSums& sums, const Group& group,
                                                std::uint32_t segment, const Quad& v) {
  if (segment >= b.long_segments) {
    return gradient_of<kQuads, kWeighted>(state, b, sums, group, b.segment_begin[segment],
                                          b.segment_begin[segment + 1], v);
  }
  Gradient<kQuads> gradient;
  const std::uint32_t end = b.piece_begin[segment + 1];
  for (std::uint32_t piece = b.piece_begin[segment]; piece < end; ++piece) {
    const float* const from = sums.partial + std::size_t{piece} * (state.width + 4);
    gradient.linear += from[state.width];
    gradient.factors =
        gradient.factors + load_quad<kQuads>(state, from, group.lane % kLanesOfEdge<kQuads>);
  }
  return gradient;
}

}  // namespace motley::wide
