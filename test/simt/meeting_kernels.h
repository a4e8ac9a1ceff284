// test/simt/meeting_kernels.h: kernels whose threads meet in every way that the emulator knows.
// They are right, and so run on a device as well. All pointers are to device memory.
#pragma once

#include <cstdint>

#include "comm/device.h"

namespace motley::test {

// *out += the sum of in[0, n): shuffles in a warp, shared memory in a block, an atomic beyond.
void sum(float* out, const float* in, std::size_t n, unsigned blocks, StreamRef stream);

// What lane i of one warp gets, at out[32 * row + i], from value 3 * i + 1.
enum Row {
  kFromFive,    // shuffle from lane 5
  kRotated,     // from lane i + 1, in segments of 8
  kUp2,         // up by 2
  kDown4,       // down by 4, in segments of 16
  kXor9,        // xor 9
  kBallotOdd,   // ballot of odd lanes
  kAnyOfSeven,  // any: lane 7
  kAllOfThem,   // all: lane < 32
  kSameThird,   // match_any of i / 3
  kAllSame,     // match_all of 4
  kSum,         // reduce_add
  kLeast,       // reduce_min of -value
  kHalfSum,     // reduce_add, lanes below and from 16 on their own
  kBits,        // popc + 100 * ffs + 10'000 * clz of value
  kTileRank,    // cooperative groups: rank in a tile of 8
  kTileSum,     // sum over a tile of 8, by xor
  kTileBallot,  // ballot of odd lanes in a tile of 4
  kRows
};
void lanes(std::int32_t* out, StreamRef stream);
// Shuffles of 8-byte values: out[i] = the value of lane i ^ 1, which is i + 0.5.
void wide_lanes(double* out, StreamRef stream);

// out[0..2]: how many, whether any, whether all of `threads` threads have rank below `limit`.
void votes(std::int32_t* out, int limit, unsigned threads, StreamRef stream);

// Every thread of `blocks` blocks of 64 applies each operation to its cell.
struct Cells {
  int sum = 0;
  unsigned least = 1u << 30;
  unsigned most = 0;
  unsigned and_bits = ~0u;
  unsigned or_bits = 0;
  unsigned xor_bits = 0;
  unsigned wrapped = 0;  // atomicInc up to 9
  unsigned swapped = 0;  // counted by compare-and-swap
  unsigned long long wide = 0;
  unsigned exchanged = 0;  // how often atomicExch met a value other than its own block's
  float single = 0;
  double twice = 0;
};
void atomics(Cells* cells, unsigned blocks, StreamRef stream);

// out[z][y][x] of a grid of (2, 3, 4) blocks of (4, 2, 2) threads, 8 x 6 x 8 in all: its own index.
void place(std::int32_t* out, StreamRef stream);

// out[i] = in[n - 1 - i] through `n` floats of dynamic shared memory, n <= 1024 threads.
void reversed(float* out, const float* in, unsigned n, StreamRef stream);

// One launch: the last block to finish adds what the others left. Returns sums in out[0].
void last_block_sum(float* out, float* partial, unsigned* counter, const float* in, std::size_t n,
                    unsigned blocks, StreamRef stream);

// Threads of `blocks` blocks of 64 but every third take tickets: out[i] is the number of thread i
// among those of label i % 5, of which counters[5] says how many there are. Lanes of a label that
// run together (cooperative groups) take theirs by one atomic: *atomics counts them.
void tickets(std::int32_t* out, unsigned* counters, unsigned* atomics, unsigned blocks,
             StreamRef stream);

// What one block of 64 adds to each: 1 to half_sum and taken, (1, -2) and (1, 1) to the pairs.
// Bits.
struct ShortSums {
  std::uint16_t half_sum = 0;
  std::uint16_t taken = 0;
  std::uint16_t half_pair[2] = {};
  std::uint16_t bfloat16_pair[2] = {};
  std::uint16_t seen = 0xffff;  // what thread 0 found in `taken`
};
void short_sums(ShortSums* sums, StreamRef stream);

// Launches that a device refuses.
void launch_nothing(unsigned blocks, unsigned threads, std::size_t shared_bytes, StreamRef stream);

}  // namespace motley::test
