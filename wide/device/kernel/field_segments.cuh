// wide/device/kernel/field_segments.cuh: how warps add up the gradients of a slot's factors for
// fields, 32 of its cells at once, by the tiles that its rows have left. In the order of rows.
#pragma once

#include "wide/device/kernel/field_rows.cuh"

namespace motley::wide {

// The gradient of quad `at` of a slot by edges [begin, end), in their order.
__device__ inline Quad gradient_of_cell(const BatchArrays& b, const DeviceSums& sums,
                                        std::uint32_t begin, std::uint32_t end, std::uint32_t at,
                                        const DeviceState& state, const Quad& w) {
  Quad gradient(0.0f);
  for (std::uint32_t e = begin; e < end; ++e) {
    const std::uint32_t row = b.edge_row[e];
    const std::uint32_t field = b.edge_field[e];
    const Sent sent = sent_to(sums, b, e, row);
    const std::size_t row_of_tile = std::size_t{row} * state.fields + field;
    Quad t = Quad::load(sums.sums + (row_of_tile * state.quads_of_fields() + at) * 4);
    // A field's own cell is zero where the edge is alone there.
    if (at / state.quads == field && total(t * t) > 0) t = t - w * Quad(sent.x);
    gradient = gradient + Quad(sent.slope * sent.x) * t;
  }
  return gradient;
}

__device__ inline float linear_gradient_of(const BatchArrays& b, const DeviceSums& sums,
                                           std::uint32_t begin, std::uint32_t end) {
  float gradient = 0;
  for (std::uint32_t e = begin; e < end; ++e) {
    const std::uint32_t row = b.edge_row[e];
    const Sent sent = sent_to(sums, b, e, row);
    gradient += Linear<One>::scatter(One(sent.x), One(sent.slope)).value;
  }
  return gradient;
}

// Calls body(unit, at) for all quads of all units, `quads` of each, neighbouring ones by the lanes
// of a warp; the last ones may be beyond them.
template <class Body>
__device__ void for_cells(std::uint32_t units, std::uint32_t quads, const Body& body) {
  const std::uint32_t chunks = (quads + kLanesOfWarp - 1) / kLanesOfWarp;
  for (std::size_t chunk = blockIdx.x * kWarps + threadIdx.x / kLanesOfWarp;
       chunk < std::size_t{units} * chunks; chunk += gridDim.x * kWarps) {
    const auto first = static_cast<std::uint32_t>(chunk % chunks) * kLanesOfWarp;
    body(static_cast<std::uint32_t>(chunk / chunks), first + threadIdx.x % kLanesOfWarp);
  }
}

// The gradients of all pieces.
__device__ inline void add_up_field_pieces(const DeviceState& state, const BatchArrays& b,
                                           const DeviceSums& sums) {
  std::uint32_t segment = 0;
  for_cells(b.pieces, state.quads_of_fields(), [&](std::uint32_t piece, std::uint32_t at) {
    while (b.piece_begin[segment + 1] <= piece) ++segment;
    const std::uint32_t begin = b.piece_edge[piece], end = b.piece_edge[piece + 1];
    float* const out = sums.partial + std::size_t{piece} * (state.width + 4);
    if (at == 0) out[state.width] = linear_gradient_of(b, sums, begin, end);
    if (at >= state.quads_of_fields()) return;
    const Quad w = Quad::load(all_factors_of(state, b.segment_slot[segment]) + 4 * at);
    gradient_of_cell(b, sums, begin, end, at, state, w).store(out + 4 * at);
  });
}

// Of a whole segment: from its pieces, in their order, if it has them.
__device__ inline float linear_gradient_of_segment(const DeviceState& state, const BatchArrays& b,
                                                   const DeviceSums& sums, std::uint32_t segment) {
  if (segment >= b.long_segments)
    return linear_gradient_of(b, sums, b.segment_begin[segment], b.segment_begin[segment + 1]);
  float gradient = 0;
  for (std::uint32_t p = b.piece_begin[segment]; p < b.piece_begin[segment + 1]; ++p)
    gradient += sums.partial[std::size_t{p} * (state.width + 4) + state.width];
  return gradient;
}
__device__ inline Quad gradient_of_cell_of_segment(const DeviceState& state, const BatchArrays& b,
                                                   const DeviceSums& sums, std::uint32_t segment,
                                                   std::uint32_t at, const Quad& w) {
  if (segment >= b.long_segments) {
    return gradient_of_cell(b, sums, b.segment_begin[segment], b.segment_begin[segment + 1], at,
                            state, w);
  }
  Quad gradient(0.0f);
  for (std::uint32_t p = b.piece_begin[segment]; p < b.piece_begin[segment + 1]; ++p)
    gradient = gradient + Quad::load(sums.partial + std::size_t{p} * (state.width + 4) + 4 * at);
  return gradient;
}

}  // namespace motley::wide
