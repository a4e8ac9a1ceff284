// wide/device/kernel/weighted_rows.cuh: the three functions of fwfm.h for a block that has one row
// at a time: a thread has four factors of a field (an item), and pairs of fields.
#pragma once

#include "wide/device/kernel/block_rows.cuh"
#include "wide/fwfm.h"

namespace motley::wide {

// Shared memory of a block for one row.
struct WeightedTile : FieldBegins {
  // Of neighbouring fields side by side, as threads ask for those at once.
  Quad* sums;        // [quads][fields]: A_f, the sum of v_i x_i over the edges of field f
  Quad* mixed;       // [quads][fields]: sum over g of r[f][g] A_g
  float* squares;    // [quads][fields]: the sum of |v_i x_i|^2
  float* warps;      // [kWarps]
  const float* r;    // [fields][fields], of which f <= g is used
  float* gradients;  // the same, by r
  std::uint32_t quads;

  __device__ static WeightedTile at(float* memory, const DeviceState& state, const float* r,
                                    float* gradients) {
    const std::size_t items = std::size_t{state.fields} * state.width / 4;
    float* const squares = memory + 8 * items;
    auto* const begin = reinterpret_cast<std::uint32_t*>(squares + items);
    return {{begin, state.fields},
            reinterpret_cast<Quad*>(memory),
            reinterpret_cast<Quad*>(memory + 4 * items),
            squares,
            squares + items + state.fields + 1,
            r,
            gradients,
            state.width / 4};
  }
  __host__ __device__ static std::size_t floats(const DeviceState& state) {
    const std::size_t items = std::size_t{state.fields} * state.width / 4;
    return (9 * items + state.fields + 1 + kWarps + 3) / 4 * 4;
  }
  __device__ std::uint32_t items() const { return fields * quads; }
  // Of an item, of which neighbours are factors of one field.
  __device__ std::uint32_t place(std::uint32_t item) const {
    return item % quads * fields + item / quads;
  }
  __device__ float r_of(std::uint32_t f, std::uint32_t g) const {
    return r[f < g ? f * fields + g : g * fields + f];
  }
};

// The sum of an item, over its field's edges, in their order. weights(e, quad) are those of an
// edge, values(e) its value. Returns the weights of the first edge.
template <class Weights, class Values>
__device__ Quad gather_item(const WeightedTile& tile, std::uint32_t item, const Weights& weights,
                            const Values& values) {
  const std::uint32_t field = item / tile.quads, quad = item % tile.quads;
  const std::uint32_t begin = tile.begin[field], end = tile.begin[field + 1];
  Quad first(0.0f), sum(0.0f);
  float squares = 0;
  for (std::uint32_t e = begin; e < end; ++e) {
    const Quad v = weights(e, quad);
    const Quad t = v * Quad(values(e));
    if (e == begin) first = v;
    sum = sum + t;
    squares += total(t * t);
  }
  tile.sums[tile.place(item)] = sum;
  tile.squares[tile.place(item)] = squares;
  return first;
}

// What this thread's items bring to the score. All sums are there; sets tile.mixed of its items.
__device__ inline float score_of_items(const WeightedTile& tile) {
  float score = 0;
  for (std::uint32_t item = threadIdx.x; item < tile.items(); item += kThreads) {
    const std::uint32_t field = item / tile.quads, quad = item % tile.quads;
    Quad mixed(0.0f);
    for (std::uint32_t g = 0; g < tile.fields; ++g)
      mixed = mixed + Quad(tile.r_of(field, g)) * tile.sums[quad * tile.fields + g];
    const std::uint32_t at = tile.place(item);
    tile.mixed[at] = mixed;
    score += (total(mixed * tile.sums[at]) - tile.r_of(field, field) * tile.squares[at]) / 2;
  }
  return score;
}

// Adds the gradients by r. A pair is always the same thread's.
__device__ inline void scatter_pairs(const WeightedTile& tile, float slope) {
  const std::uint32_t fields = tile.fields;
  // Rows f and fields - 1 - f of the triangle f <= g have fields + 1 pairs together.
  for (std::uint32_t p = threadIdx.x; p < fields * (fields + 1) / 2; p += kThreads) {
    const std::uint32_t row = p / (fields + 1), at = p % (fields + 1);
    const bool upper = at < fields - row;
    const std::uint32_t f = upper ? row : fields - 1 - row;
    const std::uint32_t g = upper ? row + at : f + at - (fields - row);
    if (tile.count(f) == 0 || tile.count(g) < (f == g ? 2 : 1)) continue;
    float sum = 0;
    for (std::uint32_t quad = 0; quad < tile.quads; ++quad) {
      const std::uint32_t of_quad = quad * fields;
      sum += total(tile.sums[of_quad + f] * tile.sums[of_quad + g]);
      if (f == g) sum -= tile.squares[of_quad + f];
    }
    tile.gradients[f * fields + g] += slope * (f == g ? sum / 2 : sum);
  }
}

}  // namespace motley::wide
