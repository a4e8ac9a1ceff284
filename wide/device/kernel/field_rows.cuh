// wide/device/kernel/field_rows.cuh: the three functions of ffm.h for a block that has one row at a
// time: its tile of field sums T lies in shared memory, and threads take cells of it, each the four
// factors of a pair of fields. Edges come in the order of fields.
#pragma once

#include "wide/device/kernel/block_rows.cuh"

namespace motley::wide {

// Shared memory of a block for one row.
struct FieldTile : FieldBegins {
  Quad* cells;  // T: [fields][fields]
  float* self;  // [fields]: sum of |W_i[f_i] x_i|^2
  float* sums;  // [kWarps]

  __device__ static FieldTile at(float* memory, std::uint32_t fields) {
    Quad* const cells = reinterpret_cast<Quad*>(memory);
    float* const rest = memory + 4 * std::size_t{fields} * fields;
    return {{reinterpret_cast<std::uint32_t*>(rest), fields},
            cells,
            rest + fields + 1,
            rest + 2 * fields + 1};
  }
  __host__ __device__ static constexpr std::size_t floats(std::size_t fields) {
    return (4 * fields * fields + 2 * fields + 1 + kWarps + 3) / 4 * 4;
  }
  __device__ Quad& cell(std::uint32_t to, std::uint32_t field) const {
    return cells[to * fields + field];
  }
};

// What this thread's pairs of fields bring to the score. T is complete.
__device__ inline float score_of_cells(const FieldTile& tile) {
  float score = 0;
  const std::uint32_t cells = tile.fields * tile.fields;
  for (std::uint32_t c = threadIdx.x; c < cells; c += kThreads) {
    const std::uint32_t g = c / tile.fields, f = c % tile.fields;
    if (g < f) {
      score += total(tile.cell(g, f) * tile.cell(f, g));
    } else if (g == f && tile.count(f) > 1) {
      score += (total(tile.cell(f, f) * tile.cell(f, f)) - tile.self[f]) / 2;
    }
  }
  return score;
}

// Whether an edge of `field` learns at the fields `to`: whether it met one.
__device__ inline bool meets(const FieldTile& tile, std::uint32_t field, std::uint32_t to) {
  return tile.count(to) > (to == field ? 1u : 0u);
}

// A thread sums up a cell's edges, which are of one field, in their order.
__device__ inline void gather_cells(const DeviceState& state, const BatchArrays& b,
                                    const FieldTile& tile, const RowHead& head) {
  const std::uint32_t cells = tile.fields * tile.fields;
  for (std::uint32_t c = threadIdx.x; c < cells; c += kThreads) {
    // Neighbours read neighbouring factors of one slot.
    const std::uint32_t field = c / tile.fields, to = c % tile.fields;
    Quad sum(0.0f);
    float self = 0;
    for (std::uint32_t e = tile.begin[field]; e < tile.begin[field + 1]; ++e) {
      const Quad t =
          Quad::load(all_factors_of(state, b.slots[e]) + 4 * to) * Quad(value_of(b, head, e));
      sum = sum + t;
      if (to == field) self += total(t * t);
    }
    // Of a single edge a field's own cell is met by nobody.
    if (to == field && tile.count(field) < 2) sum = Quad(0.0f);
    tile.cell(to, field) = sum;
    if (to == field) tile.self[field] = self;
  }
}

// Scores all rows of the batch: body(row, head, score) by one thread for each; where `sums` is not
// null, a row's tile goes there.
template <class Body>
__device__ void score_field_rows(const DeviceState& state, const BatchArrays& b, float* sums,
                                 const Body& body) {
  const FieldTile tile = FieldTile::at(dynamic_shared<float>(), state.fields);
  const std::uint32_t cells = tile.fields * tile.fields;
  for (std::uint32_t row = blockIdx.x; row < b.rows; row += gridDim.x) {
    const RowHead head = head_at(b, row);
    find_fields(tile, head, [&](std::uint32_t e) { return b.fields[e]; });
    __syncthreads();
    gather_cells(state, b, tile, head);
    float part = gather_linear(state, b, head);
    __syncthreads();
    part += score_of_cells(tile);
    const float score = state.shared[Layout::kBias] + sum_of_block(part, tile.sums);
    if (threadIdx.x == 0) body(row, head, score);
    if (sums != nullptr) {
      // What an edge of field f is sent by fields g: T[f][g], a row of the tile.
      for (std::uint32_t c = threadIdx.x; c < cells; c += kThreads)
        tile.cells[c].store(sums + (std::size_t{row} * cells + c) * 4);
    }
    __syncthreads();
  }
}

}  // namespace motley::wide
