// wide/device/kernel/field_rows.cuh: the three functions of ffm.h for a block that has one row at a
// time: its tile of field sums T lies in shared memory, and threads take cells of it, each four of
// the factors of a pair of fields. Edges come in the order of fields.
#pragma once

#include "wide/device/kernel/block_rows.cuh"

namespace motley::wide {

// Shared memory of a block for one row.
struct FieldTile : FieldBegins {
  Quad* cells;  // T: [fields][fields][quads]
  float* self;  // [fields][quads]: sum of |W_i[f_i] x_i|^2
  float* sums;  // [kWarps]
  std::uint32_t quads;

  __device__ static FieldTile at(float* memory, const DeviceState& state) {
    const std::uint32_t fields = state.fields, quads = state.quads_of_fields();
    float* const rest = memory + 4 * std::size_t{fields} * quads;
    return {{reinterpret_cast<std::uint32_t*>(rest), fields},
            reinterpret_cast<Quad*>(memory),
            rest + fields + 1,
            rest + fields + 1 + quads,
            state.quads};
  }
  __host__ __device__ static std::size_t floats(const DeviceState& state) {
    const std::size_t quads = state.quads_of_fields();
    return (4 * state.fields * quads + state.fields + 1 + quads + kWarps + 3) / 4 * 4;
  }
  __device__ Quad& cell(std::uint32_t to, std::uint32_t field, std::uint32_t quad) const {
    return cells[(to * fields + field) * quads + quad];
  }
};

// Threads take the quads of edges, or fields, in order, an even number of each, so that no two
// warps share a sector. The last may be the first of a slot's fillers.
struct QuadsInOrder {
  std::uint32_t fields, quads, stride;
  __device__ explicit QuadsInOrder(const FieldTile& tile)
      : fields(tile.fields), quads(tile.quads), stride((tile.fields * tile.quads + 1) / 2 * 2) {}

  struct Place {
    std::uint32_t of;    // which edge, or field
    std::uint32_t at;    // which quad of it
    std::uint32_t to;    // the field that it is for
    std::uint32_t quad;  // which of the factors for that
  };
  __device__ Place operator[](std::uint32_t i) const {
    const std::uint32_t at = i % stride;
    return {i / stride, at, at / quads, at % quads};
  }
  __device__ bool has(const Place& place) const { return place.to < fields; }
};

// What this thread's pairs of fields bring to the score. T is complete.
__device__ inline float score_of_cells(const FieldTile& tile) {
  float score = 0;
  const std::uint32_t row = tile.fields * tile.quads;
  for (std::uint32_t c = threadIdx.x; c < tile.fields * row; c += kThreads) {
    const std::uint32_t g = c / row, f = c % row / tile.quads, quad = c % tile.quads;
    if (g < f) {
      score += total(tile.cells[c] * tile.cell(f, g, quad));
    } else if (g == f && tile.count(f) > 1) {
      score += (total(tile.cells[c] * tile.cells[c]) - tile.self[f * tile.quads + quad]) / 2;
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
  const QuadsInOrder order(tile);
  for (std::uint32_t i = threadIdx.x; i < tile.fields * order.stride; i += kThreads) {
    const QuadsInOrder::Place p = order[i];
    Quad sum(0.0f);
    float self = 0;
    for (std::uint32_t e = tile.begin[p.of]; e < tile.begin[p.of + 1]; ++e) {
      const Quad t =
          Quad::load(all_factors_of(state, b.slots[e]) + 4 * p.at) * Quad(value_of(b, head, e));
      sum = sum + t;
      if (p.to == p.of) self += total(t * t);
    }
    // Of a single edge a field's own cell is met by nobody.
    if (p.to == p.of && tile.count(p.of) < 2) sum = Quad(0.0f);
    if (!order.has(p)) continue;
    tile.cell(p.to, p.of, p.quad) = sum;
    if (p.to == p.of) tile.self[p.of * tile.quads + p.quad] = self;
  }
}

// Scores all rows of the batch: body(row, head, score) by one thread for each; where `sums` is not
// null, a row's tile goes there.
template <class Body>
__device__ void score_field_rows(const DeviceState& state, const BatchArrays& b, float* sums,
                                 const Body& body) {
  const FieldTile tile = FieldTile::at(dynamic_shared<float>(), state);
  const std::uint32_t cells = state.fields * state.quads_of_fields();
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
