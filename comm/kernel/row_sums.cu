// Device half of row_sums.h. scatter_add_rows reads each row once and adds it where it belongs by
// one atomic a word, which the cache does; add_row_segments reads each row once and touches `out`
// once; both in the sectors in which rows lie. Of rows of which many lie in one segment a few lanes
// do all the work.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "comm/error.h"
#include "comm/kernel/ops.h"
#include "comm/kernel/row_lanes.cuh"
#include "comm/row_sums.h"

namespace motley {
namespace {

__device__ void add(double* at, Pack<double, 1> x) { atomicAdd(at, x.x[0]); }
__device__ void add(float* at, Pack<float, 1> x) { atomicAdd(at, x.x[0]); }
__device__ void add(std::int32_t* at, Pack<std::int32_t, 1> x) { atomicAdd(at, x.x[0]); }
__device__ void add(std::int64_t* at, Pack<std::int64_t, 1> x) {
  atomicAdd(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(x.x[0]));
}
__device__ void add(half* at, Pack<half, 1> x) {
  atomicAdd(reinterpret_cast<__half*>(at), __ushort_as_half(x.x[0].bits));
}
__device__ void add(half* at, Pack<half, 2> x) {
  const __half2 both = __halves2half2(__ushort_as_half(x.x[0].bits), __ushort_as_half(x.x[1].bits));
  atomicAdd(reinterpret_cast<__half2*>(at), both);
}
__device__ void add(bfloat16* at, Pack<bfloat16, 1> x) {
  atomicAdd(reinterpret_cast<__nv_bfloat16*>(at), __ushort_as_bfloat16(x.x[0].bits));
}
__device__ void add(bfloat16* at, Pack<bfloat16, 2> x) {
  const __nv_bfloat162 both =
      __halves2bfloat162(__ushort_as_bfloat16(x.x[0].bits), __ushort_as_bfloat16(x.x[1].bits));
  atomicAdd(reinterpret_cast<__nv_bfloat162*>(at), both);
}

template <class T, class Index>
struct Additions {
  T* out;
  const T* in;
  const Index* index;
  std::int64_t* note;  // RowCheck::note()
  std::size_t count;   // of the index
  std::size_t rows;    // that an index may name
  std::size_t columns;
};

template <class T, class Index, int kCount>
__global__ void __launch_bounds__(kPackThreads, kRowBlocks)
    add_narrow_rows_kernel(Additions<T, Index> rows, unsigned lane_bits) {
  const unsigned lane = threadIdx.x & ((1u << lane_bits) - 1);
  const std::size_t first = std::size_t{blockIdx.x} * kPackThreads + threadIdx.x;
  const std::size_t stride = std::size_t{gridDim.x} * kPackThreads >> lane_bits;
  for (std::size_t i = first >> lane_bits; i < rows.count; i += stride) {
    const std::int64_t row = named_row(rows, i, lane == 0);
    if (row == kNoRow || kCount * lane >= rows.columns) continue;
    const auto* const in = reinterpret_cast<const Word<T, kCount>*>(rows.in + i * rows.columns);
    T* const out = rows.out + static_cast<std::size_t>(row) * rows.columns;
    add(out + kCount * lane, unpacked<T>(in[lane]));
  }
}

// Words of a lane that make a span of 1 KiB of them.
template <class T, int kCount>
constexpr int kTilesOf = 32 / (kCount * sizeof(T));
template <class T, int kCount>
constexpr int kSpan = kTilesOf<T, kCount>* kWarpLanes* kCount;

template <class T, class Index, int kCount>
__global__ void __launch_bounds__(kPackThreads, kPackBlocks)
    add_wide_rows_kernel(Additions<T, Index> rows, std::size_t spans) {
  constexpr int kTiles = kTilesOf<T, kCount>;
  for (std::size_t k = warp_of_grid(); k < rows.count * spans; k += warps_of_grid()) {
    const std::size_t i = k / spans;
    const std::int64_t row = named_row(rows, i, k % spans == 0 && lane_of_warp() == 0);
    if (row == kNoRow) continue;
    T* const out = rows.out + static_cast<std::size_t>(row) * rows.columns;
    const RowSpan span = span_of<kSpan<T, kCount>>(out, rows.columns, k % spans);
    Word<T, kCount> tiles[kTiles];
    const auto at = static_cast<std::int64_t>(i * rows.columns) + span.at;
    load_tiles(tiles, Elements<T>{rows.in, rows.count * rows.columns}, at, span.from, span.to);
#pragma unroll
#pragma GCC unroll 40
    for (int tile = 0; tile < kTiles; ++tile) {
      const int j = (tile * kWarpLanes + lane_of_warp()) * kCount;
      if (j >= span.from && j < span.to) add(out + span.at + j, unpacked<T>(tiles[tile]));
    }
  }
}

template <class T, int kCount, class Index>
void add_rows(const RowMove& move, RowCheck& check, StreamRef stream) {
  const Additions<T, Index> rows{move.out.as<T>().data(),
                                 move.in.as<const T>().data(),
                                 move.index.as<const Index>().data(),
                                 check.note().as<std::int64_t>().data(),
                                 move.index.count,
                                 move.out.count / move.columns,
                                 move.columns};
  if (is_narrow(rows.columns / kCount)) {
    const unsigned bits = lane_bits_of(rows.columns / kCount);
    return launch(add_narrow_rows_kernel<T, Index, kCount>, shape_of_lanes(rows.count << bits),
                  stream, rows, bits);
  }
  const std::size_t spans = spans_of<kSpan<T, kCount>, T>(rows.columns);
  launch(add_wide_rows_kernel<T, Index, kCount>, shape_of_spans(rows.count * spans), stream, rows,
         spans);
}

template <class T, int kCount>
void add_rows(const RowMove& move, RowCheck& check, StreamRef stream) {
  assert(move.index.dtype == DType::kInt32 || move.index.dtype == DType::kInt64);
  if (move.index.dtype == DType::kInt32)
    return add_rows<T, kCount, std::int32_t>(move, check, stream);
  add_rows<T, kCount, std::int64_t>(move, check, stream);
}

struct Segments {
  const std::int64_t* order;
  const std::int64_t* offsets;
  std::int64_t* note;   // RowCheck::note()
  std::size_t count;    // of `order`
  std::size_t rows;     // of `out`
  std::size_t in_rows;  // of `in`
  std::size_t columns;

  // Row `from` of `in`, or kNoRow if there is none, which is noted as the k-th of `order`.
  __device__ std::int64_t in_row(std::size_t k, bool notes) const {
    const std::int64_t from = order[k];
    if (from >= 0 && from < static_cast<std::int64_t>(in_rows)) return from;
    if (notes) note_no_row(note, k, from, in_rows);
    return kNoRow;
  }
};

__device__ std::size_t offset(const Segments& segments, std::size_t row) {
  const std::int64_t at = segments.offsets[row];
  const auto most = static_cast<std::int64_t>(segments.count);
  return static_cast<std::size_t>(at < 0 ? 0 : at > most ? most : at);
}

template <class T>
__global__ void __launch_bounds__(kPackThreads, kRowBlocks)
    add_narrow_segments_kernel(T* out, const T* in, Segments segments, unsigned lane_bits) {
  const unsigned lane = threadIdx.x & ((1u << lane_bits) - 1);
  const std::size_t first = std::size_t{blockIdx.x} * kPackThreads + threadIdx.x;
  const std::size_t stride = std::size_t{gridDim.x} * kPackThreads >> lane_bits;
  for (std::size_t row = first >> lane_bits; row < segments.rows; row += stride) {
    const std::size_t begin = offset(segments, row), end = offset(segments, row + 1);
    if (begin >= end || lane >= segments.columns) continue;
    T& to = out[row * segments.columns + lane];
    auto sum = cast<Wide<T>>(to);
    for (std::size_t k = begin; k < end; ++k) {
      const std::int64_t from = segments.in_row(k, lane == 0);
      if (from == kNoRow) continue;
      const T term = in[static_cast<std::size_t>(from) * segments.columns + lane];
      sum = Sum{}(sum, cast<Wide<T>>(term));
    }
    to = cast<T>(sum);
  }
}

// Of int8 a lane has 32 sums, each in a register: at most 128 a thread.
template <class T>
constexpr int kBlocksOf = sizeof(T) == 1 ? 2 : kPackBlocks;

// Packs of kCount elements, of which no two rows share one.
template <class T, int kCount>
__global__ void __launch_bounds__(kPackThreads, kBlocksOf<T>)
    add_wide_segments_kernel(T* out, const T* in, Segments segments, std::size_t spans) {
  constexpr int kTiles = kTilesOf<T, kCount>;
  const std::size_t columns = segments.columns;
  for (std::size_t unit = warp_of_grid(); unit < segments.rows * spans; unit += warps_of_grid()) {
    const std::size_t row = unit / spans;
    const std::size_t begin = offset(segments, row), end = offset(segments, row + 1);
    const RowSpan span = span_of<kSpan<T, kCount>>(out + row * columns, columns, unit % spans);
    if (begin >= end || span.from >= span.to) continue;
    const auto load = [&](Word<T, kCount>(&tiles)[kTiles], const T* from, std::size_t rows,
                          std::size_t r) {
      load_tiles(tiles, Elements<T>{from, rows * columns},
                 static_cast<std::int64_t>(r * columns) + span.at, span.from, span.to);
    };
    Word<T, kCount> tiles[kTiles];
    load(tiles, out, segments.rows, row);
    Pack<Wide<T>, kCount> sums[kTiles];
    for (int tile = 0; tile < kTiles; ++tile)
      for (int j = 0; j < kCount; ++j)
        sums[tile].x[j] = cast<Wide<T>>(unpacked<T>(tiles[tile]).x[j]);
    for (std::size_t k = begin; k < end; ++k) {
      const std::int64_t from = segments.in_row(k, unit % spans == 0 && lane_of_warp() == 0);
      if (from == kNoRow) continue;
      load(tiles, in, segments.in_rows, static_cast<std::size_t>(from));
      for (int tile = 0; tile < kTiles; ++tile)
        for (int j = 0; j < kCount; ++j)
          sums[tile].x[j] = Sum{}(sums[tile].x[j], cast<Wide<T>>(unpacked<T>(tiles[tile]).x[j]));
    }
    for (int tile = 0; tile < kTiles; ++tile) {
      Pack<T, kCount> rounded;
      for (int j = 0; j < kCount; ++j) rounded.x[j] = cast<T>(sums[tile].x[j]);
      tiles[tile] = packed(rounded);
    }
    __syncwarp();  // another lane may have read what this one writes
    store_tiles(out + row * columns + span.at, span.from, span.to, tiles);
  }
}

template <class T>
void add_segments(T* out, const T* in, const Segments& segments, StreamRef stream) {
  const auto launch_wide = [&]<int kCount>(std::integral_constant<int, kCount>) {
    const std::size_t spans = spans_of<kSpan<T, kCount>, T>(segments.columns);
    launch(add_wide_segments_kernel<T, kCount>, shape_of_spans(segments.rows * spans), stream, out,
           in, segments, spans);
  };
  if (is_narrow(segments.columns)) {
    const unsigned bits = lane_bits_of(segments.columns);
    return launch(add_narrow_segments_kernel<T>, shape_of_lanes(segments.rows << bits), stream, out,
                  in, segments, bits);
  }
  constexpr int kPack = 16 / sizeof(T);
  if (reinterpret_cast<std::uintptr_t>(out) % 16 == 0 && segments.columns % kPack == 0)
    return launch_wide(std::integral_constant<int, kPack>{});
  launch_wide(std::integral_constant<int, 1>{});
}

}  // namespace

void scatter_add_rows_on_device(const RowMove& move, RowCheck& check, StreamRef stream) {
  assert(move.out.dtype == move.in.dtype && move.columns != 0);
  assert(move.in.count == move.index.count * move.columns);
  if (size_bytes(move.out.dtype) < 4 && !is_floating(move.out.dtype)) {
    throw Error(ErrorCode::kInvalid,
                std::string("scatter_add_rows_on_device: devices do not add ") +
                    name(move.out.dtype) +
                    " atomically. Use int32, or add_row_segments_on_device.");
  }
  if (move.index.count == 0) return;  // an empty grid is a launch error
  const auto addresses = reinterpret_cast<std::uintptr_t>(move.out.data) |
                         reinterpret_cast<std::uintptr_t>(move.in.data);
  const bool pairs = move.columns % 2 == 0 && addresses % 4 == 0;
  dispatch(move.out.dtype, [&]<class T>() {
    if constexpr (kIs16BitFloat<T>) {
      if (pairs) return add_rows<T, 2>(move, check, stream);
    }
    if constexpr (!std::is_integral_v<T> || sizeof(T) >= 4) add_rows<T, 1>(move, check, stream);
  });
}

void add_row_segments_on_device(const RowSegments& sums, RowCheck& check, StreamRef stream) {
  assert(sums.out.dtype == sums.in.dtype && sums.columns != 0);
  assert(sums.offsets.count == sums.out.count / sums.columns + 1);
  if (sums.out.count == 0) return;
  const Segments segments{sums.order.as<const std::int64_t>().data(),
                          sums.offsets.as<const std::int64_t>().data(),
                          check.note().as<std::int64_t>().data(),
                          sums.order.count,
                          sums.out.count / sums.columns,
                          sums.in.count / sums.columns,
                          sums.columns};
  dispatch(sums.out.dtype, [&]<class T>() {
    add_segments(sums.out.as<T>().data(), sums.in.as<const T>().data(), segments, stream);
  });
}

}  // namespace motley
