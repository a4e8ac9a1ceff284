// Device half of rows.h. Memory-bound: reads each row and its index once, and writes it once. A row
// of up to 32 words is copied by as many lanes, a longer one by a quarter of that, up to a block.
#include <algorithm>
#include <bit>

#include "comm/kernel/packs.cuh"
#include "comm/rows.h"

namespace motley {
namespace {

constexpr int kRowBlocks = 5;  // as kPackBlocks: at most 48 registers a thread
constexpr int kAhead = 2;      // words of a lane that are on the way together

template <std::size_t kBytes, class Index>
struct Rows {
  using W = typename WordOf<kBytes>::type;
  W* out;
  const W* in;
  const Index* index;
  std::int64_t* note;  // RowCheck::note()
  std::size_t count;   // of the index
  std::size_t rows;    // that an index may name
  std::size_t words;   // of a row
  unsigned lane_bits;  // 2^lane_bits threads copy a row
};

// The row that is named, or kNoRow; notes what is neither.
template <std::size_t kBytes, class Index>
__device__ std::int64_t named_row(const Rows<kBytes, Index>& rows, std::size_t i, bool notes) {
  const std::int64_t row = rows.index[i];
  if (row >= kNoRow && row < static_cast<std::int64_t>(rows.rows)) return row;
  if (notes && atomicAdd(reinterpret_cast<unsigned long long*>(rows.note), 1ull) == 0) {
    rows.note[1] = static_cast<std::int64_t>(i);
    rows.note[2] = row;
    rows.note[3] = static_cast<std::int64_t>(rows.rows);
  }
  return kNoRow;
}

// What a lane takes first, so that warps write whole sectors of long rows: those before the row are
// nothing.
template <std::size_t kBytes>
__device__ std::int64_t first_word(const void* out, unsigned lane, unsigned lanes) {
  const std::size_t phase = reinterpret_cast<std::uintptr_t>(out) % kSectorBytes / kBytes;
  return static_cast<std::int64_t>(lane) - static_cast<std::int64_t>(lanes < 32 ? 0 : phase);
}

template <std::size_t kBytes, class Index, bool kScatters>
__global__ void __launch_bounds__(kPackThreads, kRowBlocks) rows_kernel(Rows<kBytes, Index> rows) {
  using W = typename WordOf<kBytes>::type;
  const unsigned lanes = 1u << rows.lane_bits;
  const unsigned lane = threadIdx.x & (lanes - 1);
  const std::size_t first = std::size_t{blockIdx.x} * kPackThreads + threadIdx.x;
  const std::size_t stride = std::size_t{gridDim.x} * kPackThreads >> rows.lane_bits;
  const auto words = static_cast<std::int64_t>(rows.words);
  for (std::size_t i = first >> rows.lane_bits; i < rows.count; i += stride) {
    const std::int64_t named = named_row(rows, i, lane == 0);
    if (kScatters && named == kNoRow) continue;
    const auto row = static_cast<std::size_t>(named == kNoRow ? 0 : named);
    W* const out = rows.out + (kScatters ? row : i) * rows.words;
    const W* const in = rows.in + (kScatters ? i : row) * rows.words;
    for (std::int64_t j = first_word<kBytes>(out, lane, lanes); j < words; j += kAhead * lanes) {
      W ahead[kAhead];
      for (int k = 0; k < kAhead; ++k) {
        const std::int64_t at = j + k * static_cast<std::int64_t>(lanes);
        ahead[k] = named != kNoRow && at >= 0 && at < words ? in[at] : W{0};
      }
      for (int k = 0; k < kAhead; ++k) {
        const std::int64_t at = j + k * static_cast<std::int64_t>(lanes);
        if (at >= 0 && at < words) out[at] = ahead[k];
      }
    }
  }
}

// Lanes for a row: few that are idle, and few warps that each read the index.
std::size_t lanes_of(std::size_t words) {
  if (words <= 32) return std::bit_ceil(words);
  return std::clamp<std::size_t>(std::bit_ceil(words / 4), 32, kPackThreads);
}

// The most bytes, up to 16, of which all addresses and lengths are multiples.
std::size_t word_bytes(const RowMove& move) {
  const auto all = reinterpret_cast<std::uintptr_t>(move.out.data) |
                   reinterpret_cast<std::uintptr_t>(move.in.data) |
                   move.columns * size_bytes(move.out.dtype) | 16;
  return all & ~(all - 1);
}

template <std::size_t kBytes, class Index, bool kScatters>
void move_rows(const RowMove& move, RowCheck& check, StreamRef stream) {
  using W = typename WordOf<kBytes>::type;
  const std::size_t words = move.columns * size_bytes(move.out.dtype) / kBytes;
  const std::size_t elements = kScatters ? move.out.count : move.in.count;
  const auto lane_bits = static_cast<unsigned>(std::countr_zero(lanes_of(words)));
  const Rows<kBytes, Index> rows{reinterpret_cast<W*>(move.out.data),
                                 reinterpret_cast<const W*>(move.in.data),
                                 move.index.as<const Index>().data(),
                                 check.note().as<std::int64_t>().data(),
                                 move.index.count,
                                 elements / move.columns,
                                 words,
                                 lane_bits};
  launch(rows_kernel<kBytes, Index, kScatters>,
         {.grid = blocks_for(move.index.count << lane_bits, kPackThreads), .block = kPackThreads},
         stream, rows);
}

template <std::size_t kBytes, bool kScatters>
void move_rows(const RowMove& move, RowCheck& check, StreamRef stream) {
  assert(move.index.dtype == DType::kInt32 || move.index.dtype == DType::kInt64);
  if (move.index.dtype == DType::kInt32)
    return move_rows<kBytes, std::int32_t, kScatters>(move, check, stream);
  move_rows<kBytes, std::int64_t, kScatters>(move, check, stream);
}

template <bool kScatters>
void move_rows(const RowMove& move, RowCheck& check, StreamRef stream) {
  assert(move.out.dtype == move.in.dtype && move.columns != 0);
  assert((kScatters ? move.in : ConstView(move.out)).count == move.index.count * move.columns);
  if (move.index.count == 0) return;  // an empty grid is a launch error
  switch (word_bytes(move)) {
    case 16:
      return move_rows<16, kScatters>(move, check, stream);
    case 8:
      return move_rows<8, kScatters>(move, check, stream);
    case 4:
      return move_rows<4, kScatters>(move, check, stream);
    case 2:
      return move_rows<2, kScatters>(move, check, stream);
    default:
      return move_rows<1, kScatters>(move, check, stream);
  }
}

}  // namespace

void gather_rows_on_device(const RowMove& move, RowCheck& check, StreamRef stream) {
  move_rows<false>(move, check, stream);
}

void scatter_rows_on_device(const RowMove& move, RowCheck& check, StreamRef stream) {
  move_rows<true>(move, check, stream);
}

}  // namespace motley
