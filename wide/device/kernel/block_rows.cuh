// wide/device/kernel/block_rows.cuh: what a block that has one row at a time does with its edges,
// for models that look at fields. Edges come in the order of fields.
#pragma once

#include "wide/device/kernel/by_field.h"
#include "wide/device/kernel/rows.cuh"

namespace motley::wide {

// Where the edges of each field begin.
struct FieldBegins {
  std::uint32_t* begin;  // [fields + 1]
  std::uint32_t fields;

  __device__ std::uint32_t count(std::uint32_t field) const {
    return begin[field + 1] - begin[field];
  }
};

// field_of(e): of an edge of the row. A barrier has to follow.
template <class FieldOf>
__device__ void find_fields(const FieldBegins& of, const RowHead& head, const FieldOf& field_of) {
  const std::uint32_t first = head.begin, end = head.end;
  for (std::uint32_t e = first + threadIdx.x; e <= end; e += kThreads) {
    const std::uint32_t from = e == first ? 0 : field_of(e - 1) + 1u;
    const std::uint32_t to = e == end ? of.fields : field_of(e);
    for (std::uint32_t f = from; f <= to; ++f) of.begin[f] = e;
  }
}

// The sum over all threads of the block, in all; always in the same order. `sums`: [kWarps].
__device__ inline float sum_of_block(float x, float* sums) {
#pragma unroll
  for (int step = kLanesOfWarp / 2; step >= 1; step /= 2) x = summed(x, step);
  if (threadIdx.x % kLanesOfWarp == 0) sums[threadIdx.x / kLanesOfWarp] = x;
  __syncthreads();
  float all = 0;
  for (unsigned warp = 0; warp < kWarps; ++warp) all += sums[warp];
  return all;
}

// This thread's part of a row's linear score.
__device__ inline float gather_linear(const DeviceState& state, const BatchArrays& b,
                                      const RowHead& head) {
  float part = 0;
  for (std::uint32_t e = head.begin + threadIdx.x; e < head.end; e += kThreads)
    part += linear_of(state, b.slots[e])[0] * value_of(b, head, e);
  return part;
}

}  // namespace motley::wide
