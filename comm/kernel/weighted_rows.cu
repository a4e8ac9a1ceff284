// Device half of weighted_rows.h. Memory-bound: each row that is named is read once for each time,
// what is written once, in the sectors in which they lie; `by` of products once for each 32 terms.
#include "comm/kernel/row_lanes.cuh"
#include "comm/kernel/weighted_ops.h"
#include "comm/weighted_rows.h"

namespace motley {
namespace {

// Words of 16 bytes, two a lane: a warp takes 1 KiB of a row at once.
template <class T>
constexpr int kPackElements = 16 / sizeof(T);
constexpr int kWeightedTiles = 2;
template <class T>
constexpr int kWeightedSpan = kWeightedTiles* kWarpLanes* kPackElements<T>;
template <class T>
using Words = Word<T, kPackElements<T>>[kWeightedTiles];
// Of 16-bit floats a lane has twice as many sums, each in a register: at most 128 a thread.
template <class T>
constexpr int kWeightedBlocks = sizeof(T) == 2 ? 2 : kPackBlocks;
template <class T>
struct Floats {
  float x[kWeightedTiles][kPackElements<T>];
};

// What the kernels take of their arguments; `out` of products are floats.
template <class T>
struct Sums {
  T* out;
  const T* in;
  const std::int64_t* index;  // [count, terms, parts]
  const float* weight;        // [count, terms], or null
  std::int64_t* note;         // RowCheck::note()
  std::size_t count;          // of rows of `out`, or of `by`
  std::size_t rows;           // of `in`
  std::size_t columns;
  std::size_t terms;
  std::size_t parts;

  __device__ float weight_of(std::size_t term) const {
    return weight == nullptr ? 1.0f : weight[term];
  }
  __device__ Elements<T> all() const { return {in, rows * columns}; }
};

// part = the sum of the rows of a term, or nothing: then false.
template <class T>
__device__ bool sum_parts(Floats<T>& part, const Sums<T>& sums, std::size_t term,
                          const RowSpan& span, bool notes) {
  bool any = false;
  for (std::size_t s = term * sums.parts; s < (term + 1) * sums.parts; ++s) {
    const std::int64_t row = named_row(sums, s, notes);
    if (row == kNoRow) continue;
    Words<T> words;
    load_tiles(words, sums.all(), row * static_cast<std::int64_t>(sums.columns) + span.at,
               span.from, span.to);
#pragma unroll
    for (int tile = 0; tile < kWeightedTiles; ++tile) {
      const auto pack = unpacked<T>(words[tile]);
#pragma unroll
      for (int k = 0; k < kPackElements<T>; ++k) {
        const float x = cast<float>(pack.x[k]);
        part.x[tile][k] = any ? part.x[tile][k] + x : x;
      }
    }
    any = true;
  }
  return any;
}

template <class T>
__device__ void store(T* out, const RowSpan& span, const Floats<T>& sum) {
  Words<T> words;
#pragma unroll
  for (int tile = 0; tile < kWeightedTiles; ++tile) {
    Pack<T, kPackElements<T>> rounded;
#pragma unroll
    for (int k = 0; k < kPackElements<T>; ++k) rounded.x[k] = cast<T>(sum.x[tile][k]);
    words[tile] = packed(rounded);
  }
  store_tiles(out + span.at, span.from, span.to, words);
}

template <class T>
__global__ void __launch_bounds__(kPackThreads, kWeightedBlocks<T>)
    sum_wide_rows_kernel(Sums<T> sums, std::size_t spans) {
  for (std::size_t unit = warp_of_grid(); unit < sums.count * spans; unit += warps_of_grid()) {
    const std::size_t i = unit / spans;
    T* const out = sums.out + i * sums.columns;
    const RowSpan span = span_of<kWeightedSpan<T>>(out, sums.columns, unit % spans);
    if (span.from >= span.to) continue;
    const bool notes = unit % spans == 0 && lane_of_warp() == 0;
    Floats<T> sum = {};
    for (std::size_t term = i * sums.terms; term < (i + 1) * sums.terms; ++term) {
      Floats<T> part;
      if (!sum_parts(part, sums, term, span, notes)) continue;
      const Weighted weighted{sums.weight_of(term)};
#pragma unroll
      for (int tile = 0; tile < kWeightedTiles; ++tile)
#pragma unroll
        for (int k = 0; k < kPackElements<T>; ++k)
          sum.x[tile][k] = weighted(sum.x[tile][k], part.x[tile][k]);
    }
    store(out, span, sum);
  }
}

// The sum of the elements of column `column` of the rows of a term; `any`: whether there are some.
template <class T>
__device__ float sum_of_parts(const Sums<T>& sums, std::size_t term, std::size_t column, bool notes,
                              bool& any) {
  float sum = 0;
  any = false;
  for (std::size_t s = term * sums.parts; s < (term + 1) * sums.parts; ++s) {
    const std::int64_t row = named_row(sums, s, notes);
    if (row == kNoRow || column >= sums.columns) continue;
    const float x = cast<float>(sums.in[static_cast<std::size_t>(row) * sums.columns + column]);
    sum = any ? sum + x : x;
    any = true;
  }
  return sum;
}

template <class T>
__global__ void __launch_bounds__(kPackThreads, kRowBlocks)
    sum_narrow_rows_kernel(Sums<T> sums, unsigned lane_bits) {
  const unsigned lane = threadIdx.x & ((1u << lane_bits) - 1);
  const std::size_t first = std::size_t{blockIdx.x} * kPackThreads + threadIdx.x;
  const std::size_t stride = std::size_t{gridDim.x} * kPackThreads >> lane_bits;
  for (std::size_t i = first >> lane_bits; i < sums.count; i += stride) {
    float sum = 0;
    for (std::size_t term = i * sums.terms; term < (i + 1) * sums.terms; ++term) {
      bool any = false;
      const float x = sum_of_parts(sums, term, lane, lane == 0, any);
      if (any) sum = Weighted{sums.weight_of(term)}(sum, x);
    }
    if (lane < sums.columns) sums.out[i * sums.columns + lane] = cast<T>(sum);
  }
}

// out = scale * in[index], or zero: one row for each row of `out`.
template <class T>
__global__ void __launch_bounds__(kPackThreads, kWeightedBlocks<T>)
    gather_wide_rows_kernel(Sums<T> sums, std::size_t spans) {
  for (std::size_t unit = warp_of_grid(); unit < sums.count * spans; unit += warps_of_grid()) {
    const std::size_t i = unit / spans;
    T* const out = sums.out + i * sums.columns;
    const RowSpan span = span_of<kWeightedSpan<T>>(out, sums.columns, unit % spans);
    if (span.from >= span.to) continue;
    Floats<T> scaled = {};
    if (sum_parts(scaled, sums, i, span, unit % spans == 0 && lane_of_warp() == 0)) {
      const Weighted weighted{sums.weight_of(i)};
#pragma unroll
      for (int tile = 0; tile < kWeightedTiles; ++tile)
#pragma unroll
        for (int k = 0; k < kPackElements<T>; ++k) scaled.x[tile][k] = weighted(scaled.x[tile][k]);
    }
    store(out, span, scaled);
  }
}

template <class T>
__global__ void __launch_bounds__(kPackThreads, kRowBlocks)
    gather_narrow_rows_kernel(Sums<T> sums, unsigned lane_bits) {
  const unsigned lane = threadIdx.x & ((1u << lane_bits) - 1);
  const std::size_t first = std::size_t{blockIdx.x} * kPackThreads + threadIdx.x;
  const std::size_t stride = std::size_t{gridDim.x} * kPackThreads >> lane_bits;
  for (std::size_t i = first >> lane_bits; i < sums.count; i += stride) {
    bool any = false;
    const float x = sum_of_parts(sums, i, lane, lane == 0, any);
    if (lane < sums.columns)
      sums.out[i * sums.columns + lane] = any ? cast<T>(Weighted{sums.weight_of(i)}(x)) : T{};
  }
}

// The sum over a warp, in all lanes.
__device__ float sum_of_lanes(float x) {
  for (int lanes = kWarpLanes / 2; lanes > 0; lanes /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, lanes);
  return x;
}

// A warp a row of `by`, of which it keeps a span while it takes term after term: lane j has the
// sum of the j-th of 32.
template <class T>
__global__ void __launch_bounds__(kPackThreads, kWeightedBlocks<T>)
    multiply_rows_kernel(float* out, const T* by, Sums<T> sums, std::size_t spans) {
  const int lane = lane_of_warp();
  for (std::size_t i = warp_of_grid(); i < sums.count; i += warps_of_grid()) {
    for (std::size_t first = 0; first < sums.terms; first += kWarpLanes) {
      const std::size_t left = sums.terms - first;
      const int terms = left < kWarpLanes ? static_cast<int>(left) : kWarpLanes;
      float mine = 0;
      for (std::size_t s = 0; s < spans; ++s) {
        const T* const row = by + i * sums.columns;
        const RowSpan span = span_of<kWeightedSpan<T>>(row, sums.columns, s);
        if (span.from >= span.to) continue;
        Words<T> words;
        load_tiles(words, Elements<T>{by, sums.count * sums.columns},
                   static_cast<std::int64_t>(i * sums.columns) + span.at, span.from, span.to);
        for (int j = 0; j < terms; ++j) {
          const std::size_t term = i * sums.terms + first + static_cast<unsigned>(j);
          Floats<T> part;
          if (!sum_parts(part, sums, term, span, s == 0 && lane == 0)) continue;
          float product = 0;
#pragma unroll
          for (int tile = 0; tile < kWeightedTiles; ++tile) {
            const auto pack = unpacked<T>(words[tile]);
            const int at = (tile * kWarpLanes + lane) * kPackElements<T>;
#pragma unroll
            for (int k = 0; k < kPackElements<T>; ++k) {
              const bool in_row = at + k >= span.from && at + k < span.to;
              if (in_row) product += cast<float>(pack.x[k]) * part.x[tile][k];
            }
          }
          product = sum_of_lanes(product);
          if (lane == j) mine += product;
        }
      }
      if (lane < terms) out[i * sums.terms + first + static_cast<unsigned>(lane)] = mine;
    }
  }
}

template <class T>
void gather(const ScaledRows& rows, RowCheck& check, StreamRef stream) {
  const Sums<T> sums{rows.out.as<T>().data(),
                     rows.in.as<const T>().data(),
                     rows.index.as<const std::int64_t>().data(),
                     rows.scale.count == 0 ? nullptr : rows.scale.as<const float>().data(),
                     check.note().as<std::int64_t>().data(),
                     rows.index.count,
                     rows.in.count / rows.columns,
                     rows.columns,
                     1,
                     1};
  if (is_narrow(sums.columns)) {
    const unsigned bits = lane_bits_of(sums.columns);
    return launch(gather_narrow_rows_kernel<T>, shape_of_lanes(sums.count << bits), stream, sums,
                  bits);
  }
  const std::size_t spans = spans_of<kWeightedSpan<T>, T>(sums.columns);
  launch(gather_wide_rows_kernel<T>, shape_of_spans(sums.count * spans), stream, sums, spans);
}

template <class T>
void sum(const WeightedRowSums& rows, RowCheck& check, StreamRef stream) {
  const Sums<T> sums{rows.out.as<T>().data(),
                     rows.in.as<const T>().data(),
                     rows.row.as<const std::int64_t>().data(),
                     rows.weight.count == 0 ? nullptr : rows.weight.as<const float>().data(),
                     check.note().as<std::int64_t>().data(),
                     rows.out.count / rows.columns,
                     rows.in.count / rows.columns,
                     rows.columns,
                     rows.terms,
                     rows.parts};
  if (is_narrow(sums.columns)) {
    const unsigned bits = lane_bits_of(sums.columns);
    return launch(sum_narrow_rows_kernel<T>, shape_of_lanes(sums.count << bits), stream, sums,
                  bits);
  }
  const std::size_t spans = spans_of<kWeightedSpan<T>, T>(sums.columns);
  launch(sum_wide_rows_kernel<T>, shape_of_spans(sums.count * spans), stream, sums, spans);
}

template <class T>
void multiply(const RowProducts& products, RowCheck& check, StreamRef stream) {
  const Sums<T> sums{nullptr,
                     products.in.as<const T>().data(),
                     products.row.as<const std::int64_t>().data(),
                     nullptr,
                     check.note().as<std::int64_t>().data(),
                     products.by.count / products.columns,
                     products.in.count / products.columns,
                     products.columns,
                     products.terms,
                     products.parts};
  launch(multiply_rows_kernel<T>, shape_of_spans(sums.count), stream,
         products.out.as<float>().data(), products.by.as<const T>().data(), sums,
         spans_of<kWeightedSpan<T>, T>(products.columns));
}

}  // namespace

void gather_scaled_rows_on_device(const ScaledRows& rows, RowCheck& check, StreamRef stream) {
  expect_shape(rows);
  dispatch_rows("gather_scaled_rows_on_device", rows.in.dtype, [&]<class T>() {
    if (rows.out.count != 0) gather<T>(rows, check, stream);  // an empty grid is a launch error
  });
}

void sum_weighted_rows_on_device(const WeightedRowSums& sums, RowCheck& check, StreamRef stream) {
  expect_shape(sums);
  dispatch_rows("sum_weighted_rows_on_device", sums.in.dtype, [&]<class T>() {
    if (sums.out.count != 0) sum<T>(sums, check, stream);
  });
}

void multiply_rows_on_device(const RowProducts& products, RowCheck& check, StreamRef stream) {
  expect_shape(products);
  dispatch_rows("multiply_rows_on_device", products.in.dtype, [&]<class T>() {
    if (products.out.count != 0) multiply<T>(products, check, stream);
  });
}

}  // namespace motley
