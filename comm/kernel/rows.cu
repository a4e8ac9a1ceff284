// Device half of rows.h. Memory-bound: reads each row and its index once, and writes it once, in
// the sectors in which it lies.
#include "comm/kernel/row_lanes.cuh"
#include "comm/rows.h"

namespace motley {
namespace {

template <class Index>
struct Rows {
  std::byte* out;
  const std::byte* in;
  const Index* index;
  std::int64_t* note;     // RowCheck::note()
  std::size_t count;      // of the index
  std::size_t rows;       // that an index may name
  std::size_t row_bytes;  // of a row
  bool scatters;          // else gathers

  // Row i of the index, which names `named`, as it lies in `out` and in `in`.
  __device__ std::size_t out_row(std::size_t i, std::size_t named) const {
    return scatters ? named : i;
  }
  __device__ std::size_t in_row(std::size_t i, std::size_t named) const {
    return scatters ? i : named;
  }
};

template <std::size_t kBytes, class Index>
__global__ void __launch_bounds__(kPackThreads, kRowBlocks)
    narrow_rows_kernel(Rows<Index> rows, unsigned lane_bits) {
  using W = typename WordOf<kBytes>::type;
  const unsigned lane = threadIdx.x & ((1u << lane_bits) - 1);
  const std::size_t first = std::size_t{blockIdx.x} * kPackThreads + threadIdx.x;
  const std::size_t stride = std::size_t{gridDim.x} * kPackThreads >> lane_bits;
  for (std::size_t i = first >> lane_bits; i < rows.count; i += stride) {
    const std::int64_t named = named_row(rows, i, lane == 0);
    if (lane * kBytes >= rows.row_bytes || (rows.scatters && named == kNoRow)) continue;
    const auto row = static_cast<std::size_t>(named == kNoRow ? 0 : named);
    const std::byte* const in = rows.in + rows.in_row(i, row) * rows.row_bytes;
    std::byte* const out = rows.out + rows.out_row(i, row) * rows.row_bytes;
    reinterpret_cast<W*>(out)[lane] = named == kNoRow ? W{0} : reinterpret_cast<const W*>(in)[lane];
  }
}

constexpr int kTiles = 4;
template <class T>
constexpr int kPack = 16 / sizeof(T);
template <class T>
constexpr int kSpan = kTiles* kWarpLanes* kPack<T>;

template <class T, class Index>
__global__ void __launch_bounds__(kPackThreads, kPackBlocks)
    wide_rows_kernel(Rows<Index> rows, std::size_t spans) {
  const std::size_t words = rows.row_bytes / sizeof(T);
  const Elements<T> all{reinterpret_cast<const T*>(rows.in),
                        (rows.scatters ? rows.count : rows.rows) * words};
  for (std::size_t k = warp_of_grid(); k < rows.count * spans; k += warps_of_grid()) {
    const std::size_t i = k / spans;
    const std::int64_t named = named_row(rows, i, k % spans == 0 && lane_of_warp() == 0);
    if (rows.scatters && named == kNoRow) continue;
    const auto row = static_cast<std::size_t>(named == kNoRow ? 0 : named);
    T* const out = reinterpret_cast<T*>(rows.out) + rows.out_row(i, row) * words;
    const RowSpan span = span_of<kSpan<T>>(out, words, k % spans);
    if (span.from >= span.to) continue;
    Word<T, kPack<T>> tiles[kTiles] = {};
    if (named != kNoRow) {
      const auto at = static_cast<std::int64_t>(rows.in_row(i, row) * words) + span.at;
      load_tiles(tiles, all, at, span.from, span.to);
    }
    store_tiles(out + span.at, span.from, span.to, tiles);
  }
}

enum class Way { kGather, kScatter };

// Of which 16-byte words are made.
template <std::size_t kBytes>
using Element = std::conditional_t<
    kBytes == 1, std::uint8_t,
    std::conditional_t<kBytes == 2, std::uint16_t,
                       std::conditional_t<kBytes == 4, std::uint32_t, std::uint64_t>>>;

// `kBytes` divides all addresses and lengths.
template <std::size_t kBytes, class Index>
void move_rows(const RowMove& move, RowCheck& check, StreamRef stream, Way way) {
  const std::size_t elements = way == Way::kScatter ? move.out.count : move.in.count;
  const Rows<Index> rows{move.out.data,
                         move.in.data,
                         move.index.as<const Index>().data(),
                         check.note().as<std::int64_t>().data(),
                         move.index.count,
                         elements / move.columns,
                         move.columns * size_bytes(move.out.dtype),
                         way == Way::kScatter};
  const std::size_t words = rows.row_bytes / kBytes;
  if (is_narrow(words)) {
    const unsigned bits = lane_bits_of(words);
    return launch(narrow_rows_kernel<kBytes, Index>, shape_of_lanes(rows.count << bits), stream,
                  rows, bits);
  }
  using T = Element<kBytes>;
  const std::size_t spans = spans_of<kSpan<T>, T>(rows.row_bytes / sizeof(T));
  launch(wide_rows_kernel<T, Index>, shape_of_spans(rows.count * spans), stream, rows, spans);
}

// The most bytes, up to 16, of which all addresses and lengths are multiples.
std::size_t word_bytes(const RowMove& move) {
  const auto all = reinterpret_cast<std::uintptr_t>(move.out.data) |
                   reinterpret_cast<std::uintptr_t>(move.in.data) |
                   move.columns * size_bytes(move.out.dtype) | 16;
  return all & ~(all - 1);
}

template <std::size_t kBytes>
void move_rows(const RowMove& move, RowCheck& check, StreamRef stream, Way way) {
  assert(move.index.dtype == DType::kInt32 || move.index.dtype == DType::kInt64);
  if (move.index.dtype == DType::kInt32)
    return move_rows<kBytes, std::int32_t>(move, check, stream, way);
  move_rows<kBytes, std::int64_t>(move, check, stream, way);
}

void move_rows(const RowMove& move, RowCheck& check, StreamRef stream, Way way) {
  assert(move.out.dtype == move.in.dtype && move.columns != 0);
  assert((way == Way::kScatter ? move.in : ConstView(move.out)).count ==
         move.index.count * move.columns);
  if (move.index.count == 0) return;  // an empty grid is a launch error
  switch (word_bytes(move)) {
    case 16:
      return move_rows<16>(move, check, stream, way);
    case 8:
      return move_rows<8>(move, check, stream, way);
    case 4:
      return move_rows<4>(move, check, stream, way);
    case 2:
      return move_rows<2>(move, check, stream, way);
    default:
      return move_rows<1>(move, check, stream, way);
  }
}

}  // namespace

void gather_rows_on_device(const RowMove& move, RowCheck& check, StreamRef stream) {
  move_rows(move, check, stream, Way::kGather);
}

void scatter_rows_on_device(const RowMove& move, RowCheck& check, StreamRef stream) {
  move_rows(move, check, stream, Way::kScatter);
}

}  // namespace motley
