// comm/kernel/row_lanes.cuh: how kernels share rows among lanes, and take them by an index.
#pragma once

#include <bit>
#include <cstdint>

#include "comm/kernel/tiles.cuh"
#include "comm/rows.h"

namespace motley {

constexpr int kRowBlocks = 5;  // as kPackBlocks: at most 48 registers a thread

// Notes `row`, at place `i`, as one of which there are but `rows`.
__device__ inline void note_no_row(std::int64_t* note, std::size_t i, std::int64_t row,
                                   std::size_t rows) {
  if (atomicAdd(reinterpret_cast<unsigned long long*>(note), 1ull) != 0) return;
  note[1] = static_cast<std::int64_t>(i);
  note[2] = row;
  note[3] = static_cast<std::int64_t>(rows);
}

// The row that is named by rows.index[i], or kNoRow; notes what is neither in rows.note.
template <class Rows>
__device__ std::int64_t named_row(const Rows& rows, std::size_t i, bool notes) {
  const std::int64_t row = rows.index[i];
  if (row >= kNoRow && row < static_cast<std::int64_t>(rows.rows)) return row;
  if (notes) note_no_row(rows.note, i, row, rows.rows);
  return kNoRow;
}

// Rows of up to 32 words are narrow: lanes take a word each, of as many rows as a warp holds. Of
// wide ones a warp takes a span at once.
inline bool is_narrow(std::size_t words) { return words <= kWarpLanes; }
// 2^lane_bits lanes take a narrow row, few of them idle.
inline unsigned lane_bits_of(std::size_t words) {
  return static_cast<unsigned>(std::countr_zero(std::bit_ceil(words)));
}

// A span of a wide row: elements [from, to) of those from `at` on, counted from the row's first
// one. It begins at a sector, so `at` may lie before the row.
struct RowSpan {
  std::int64_t at;
  int from;
  int to;
};

// Spans of `kSpan` elements that a row has wherever it begins; the last may be empty.
template <int kSpan, class T>
std::size_t spans_of(std::size_t columns) {
  return (columns + kSectorBytes / sizeof(T) - 1 + kSpan - 1) / kSpan;
}

template <int kSpan, class T>
__device__ RowSpan span_of(const T* row, std::size_t columns, std::size_t span) {
  const std::size_t off = reinterpret_cast<std::uintptr_t>(row) % kSectorBytes / sizeof(T);
  const auto at = static_cast<std::int64_t>(span * kSpan) - static_cast<std::int64_t>(off);
  const auto left = static_cast<std::int64_t>(columns) - at;
  return {at, at < 0 ? static_cast<int>(-at) : 0, static_cast<int>(left < kSpan ? left : kSpan)};
}

// Blocks for `spans` warps, and for `lanes` lanes.
inline LaunchShape shape_of_spans(std::size_t spans) {
  return {.grid = blocks_for(spans * kWarpLanes, kPackThreads), .block = kPackThreads};
}
inline LaunchShape shape_of_lanes(std::size_t lanes) {
  return {.grid = blocks_for(lanes, kPackThreads), .block = kPackThreads};
}

}  // namespace motley
