// One line of a benchmark's table: a collective, its element type, its size and where its data lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "comm/call_kind.h"
#include "comm/dtype.h"

namespace motley::perf {

enum class Place : std::uint8_t { kOut, kIn };  // out of place; the result takes the input's place

enum class Buffers : std::uint8_t {
  kPrivate,    // memory of the process alone, as from malloc
  kAllocated,  // from the library's own allocator, which may let the other ranks read it
  kDevice,     // of a device
};

constexpr const char* name(Place place) noexcept { return place == Place::kIn ? "in" : "out"; }
constexpr const char* name(Buffers buffers) noexcept {
  constexpr const char* kNames[] = {"private", "allocated", "device"};
  return kNames[static_cast<int>(buffers)];
}

struct Cell {
  CallKind kind = CallKind::kAllReduce;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Place place = Place::kIn;
  Buffers buffers = Buffers::kPrivate;
  std::size_t count = 0;  // elements of the longer of input and output, over all its blocks
  int root = 0;
  std::string algorithm = "auto";

  std::size_t bytes() const noexcept { return count * size_bytes(dtype); }
};

// The longer of input and output has a block for each rank: its count is a multiple of them.
bool has_blocks(CallKind kind) noexcept;
// The input, or the output, is one block for each rank, if has_blocks(); else one block.
bool takes_blocks(CallKind kind) noexcept;
bool gives_blocks(CallKind kind) noexcept;
// The call can be made in place and out of place.
bool has_places(CallKind kind) noexcept;

// Elements of one block, or of all where there are none.
std::size_t block_count(const Cell& cell, int ranks);

// Elements that a rank passes in and gets out: none where only the root does.
struct Extent {
  std::size_t in = 0;
  std::size_t out = 0;
  std::size_t in_place = 0;  // where the input begins in the output, if it lies there
};
Extent extent(const Cell& cell, int rank, int ranks);

// busbw = algbw * bus_factor, as in nccl-tests: what each link would carry at best.
double bus_factor(CallKind kind, int ranks);

}  // namespace motley::perf
