// One line of a benchmark's table: a collective, its element type, its size and where its data lie.
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/call_kind.h"
#include "comm/dtype.h"

namespace motley::perf {

enum class Place : std::uint8_t { kOut, kIn };  // out of place; the result takes the input's place

enum class Buffers : std::uint8_t {
  kPrivate,    // memory of the process alone, as from malloc
  kAllocated,  // from the library's own allocator, which may let the other ranks read it
};

constexpr const char* name(Place place) noexcept { return place == Place::kIn ? "in" : "out"; }
constexpr const char* name(Buffers buffers) noexcept {
  return buffers == Buffers::kPrivate ? "private" : "allocated";
}

struct Cell {
  CallKind kind = CallKind::kAllReduce;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Place place = Place::kIn;
  Buffers buffers = Buffers::kPrivate;
  std::size_t count = 0;  // elements of the longer of input and output, over all its blocks
  int root = 0;

  std::size_t bytes() const noexcept { return count * size_bytes(dtype); }
};

// Elements that a rank passes in and gets out.
struct Extent {
  std::size_t in = 0;
  std::size_t out = 0;
};
Extent extent(const Cell& cell, int ranks);

// The buffer has one block for each rank: its count is a multiple of the number of ranks.
bool has_blocks(CallKind kind) noexcept;

// busbw = algbw * bus_factor, as in nccl-tests: what each link would carry at best.
double bus_factor(CallKind kind, int ranks);

}  // namespace motley::perf
