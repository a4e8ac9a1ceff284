// comm/kernel/tiles.cuh: how a warp reads and writes a span of a buffer in whole sectors of memory,
// wherever the span begins.
//
// A span is kTiles tiles of 32 packs, one a lane, side by side. It is read in words of a pack's
// size from the sector boundary before it on; lanes and tiles pass on to each other what each needs
// of them. So a span that does not begin at a sector costs one sector more, not one a tile: of
// kTiles times 512 bytes. No word reaches beyond the ends of its buffer.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "comm/kernel/cut.h"
#include "comm/launch.cuh"

namespace motley {

// A buffer is read as words whatever its elements are.
template <std::size_t kBytes>
struct WordOf;
template <>
struct WordOf<1> {
  typedef std::uint8_t type __attribute__((may_alias));
};
template <>
struct WordOf<2> {
  typedef std::uint16_t type __attribute__((may_alias));
};
template <>
struct WordOf<4> {
  typedef std::uint32_t type __attribute__((may_alias));
};
template <>
struct WordOf<8> {
  typedef std::uint64_t type __attribute__((may_alias));
};
template <>
struct WordOf<16> {
  __extension__ typedef unsigned __int128 type __attribute__((may_alias));
};
template <class T, int kCount>
using Word = typename WordOf<kCount * sizeof(T)>::type;

template <class T, int kCount>
struct Pack {
  T x[kCount];
};

template <class T, class W>
__device__ Pack<T, sizeof(W) / sizeof(T)> unpacked(W word) {
  return std::bit_cast<Pack<T, sizeof(W) / sizeof(T)>>(word);
}
template <class T, int kCount>
__device__ Word<T, kCount> packed(const Pack<T, kCount>& pack) {
  if constexpr (sizeof(T) < 4 || kCount == 1) return std::bit_cast<Word<T, kCount>>(pack);
  Word<T, kCount> word = 0;  // floats that went through memory would stay there
  for (int k = 0; k < kCount; ++k)
    word |= static_cast<Word<T, kCount>>(std::bit_cast<Word<T, 1>>(pack.x[k])) << 8 * sizeof(T) * k;
  return word;
}

constexpr int kPackThreads = 256;
constexpr int kPackBlocks = 3;  // at once on a multiprocessor: at most 80 registers a thread
constexpr int kWarpLanes = 32;

__device__ inline int lane_of_warp() { return static_cast<int>(threadIdx.x % kWarpLanes); }
// This warp, and how many there are.
__device__ inline std::size_t warp_of_grid() {
  return (std::size_t{blockIdx.x} * kPackThreads + threadIdx.x) / kWarpLanes;
}
__device__ inline std::size_t warps_of_grid() {
  return std::size_t{gridDim.x} * (kPackThreads / kWarpLanes);
}

// `word` of another lane of the warp.
template <class W>
__device__ W of_lane(W word, int lane) {
  constexpr unsigned kAll = 0xffffffffu;
  if constexpr (sizeof(W) == 16) {
    const auto low = __shfl_sync(kAll, static_cast<unsigned long long>(word), lane);
    const auto high = __shfl_sync(kAll, static_cast<unsigned long long>(word >> 64), lane);
    return static_cast<W>(high) << 64 | low;
  } else if constexpr (sizeof(W) == 8) {
    return __shfl_sync(kAll, static_cast<unsigned long long>(word), lane);
  } else {
    return static_cast<W>(__shfl_sync(kAll, static_cast<unsigned>(word), lane));
  }
}

// condition ? a : b, of elements of arrays, which this leaves in registers.
template <class W>
__device__ W chosen(bool condition, W a, W b) {
  return static_cast<W>((condition ? a : W{0}) | (condition ? W{0} : b));
}

// Beyond it nothing is read.
template <class T>
struct Elements {
  const T* data = nullptr;
  std::size_t count = 0;
};

// Words that lie wholly in a buffer, counted from `words` on: [begin, end), as far as an int holds.
struct Inside {
  int begin;
  int end;
};

template <class W, class T>
__device__ Inside inside(std::uintptr_t words, const Elements<T>& buffer) {
  constexpr std::int64_t kFar = 1 << 20;
  constexpr auto kWord = static_cast<std::int64_t>(sizeof(W));
  const auto before =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(buffer.data) - words);
  const auto until = before + static_cast<std::int64_t>(buffer.count * sizeof(T));
  const std::int64_t begin = before <= 0 ? 0 : (before + kWord - 1) / kWord;
  const std::int64_t end = until <= 0 ? 0 : until / kWord;
  return {static_cast<int>(begin < kFar ? begin : kFar), static_cast<int>(end < kFar ? end : kFar)};
}

// What of a word lies in the buffer; the rest is 0.
template <class W, class T>
__device__ W part_of_word(std::uintptr_t word, const Elements<T>& buffer) {
  const auto* const at = reinterpret_cast<const Word<T, 1>*>(word);
  const auto* const first = reinterpret_cast<const Word<T, 1>*>(buffer.data);
  W part = 0;
#pragma unroll 1
  for (int k = 0; k < static_cast<int>(sizeof(W) / sizeof(T)); ++k) {
    if (at + k >= first && at + k < first + buffer.count)
      part |= static_cast<W>(static_cast<W>(at[k]) << 8 * sizeof(T) * k);
  }
  return part;
}

// Elements [from, to) of the span that begins at element `at` of the buffer, which may lie before
// it; the others are anything. All lanes of a warp call it together.
template <class V, int kTiles, class T>
__device__ void load_tiles(V (&tiles)[kTiles], const Elements<T>& buffer, std::int64_t at, int from,
                           int to) {
  using W = Word<T, sizeof(V) / sizeof(T)>;
  constexpr int kWord = sizeof(W), kElement = sizeof(T);
  const auto address =
      reinterpret_cast<std::uintptr_t>(buffer.data) + static_cast<std::uintptr_t>(at * kElement);
  const int crook = static_cast<int>(address % kWord);  // bytes by which packs are off words
  const int shift = static_cast<int>(address % kSectorBytes) / kWord;  // words, off sectors
  const std::uintptr_t words = address - static_cast<unsigned>(crook);
  const int first = (from * kElement + crook) / kWord;
  const int last = (to * kElement + crook + kWord - 1) / kWord;
  const Inside whole = inside<W>(words, buffer);
  // Lane by lane the words from the sector boundary on: the last lanes may have what belongs to
  // the first ones of the span's next tile.
  const int lane = lane_of_warp(), turned = (lane + shift) % kWarpLanes;
  const int begin = first > whole.begin ? first : whole.begin;
  const int end = last < whole.end ? last : whole.end;
  W word[kTiles + 1];
#pragma unroll
#pragma GCC unroll 40  // for the emulator: a tile's accesses are one instruction
  for (int tile = 0; tile <= kTiles; ++tile) {
    const int i = tile * kWarpLanes + turned - shift;
    word[tile] = 0;
    if (i >= begin && i < end) word[tile] = reinterpret_cast<const W*>(words)[i];
  }
  // Words that lie partly in the buffer: its first one, and its last.
  const auto add_part = [&](int i) __attribute__((always_inline)) {
    W part = 0;
    if ((i + shift) % kWarpLanes == turned)
      part = part_of_word<W>(words + static_cast<std::uintptr_t>(std::int64_t{i} * kWord), buffer);
#pragma unroll
    for (int tile = 0; tile <= kTiles; ++tile)
      word[tile] |= (i + shift) / kWarpLanes == tile ? part : W{0};
  };
  if (kWord != kElement && begin > first) add_part(begin - 1);
  if (kWord != kElement && end < last && end >= begin) add_part(end);
  const bool turns = lane + shift >= kWarpLanes;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) word[tile] = chosen(turns, word[tile + 1], word[tile]);
  if (crook != 0) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const W given = chosen(lane == 0, word[tile + 1], word[tile]);
      const W next = of_lane<W>(given, (lane + 1) % kWarpLanes);
      word[tile] = static_cast<W>(word[tile] >> 8 * crook | next << 8 * (kWord - crook));
    }
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) tiles[tile] = word[tile];
}

// Writes elements [from, to) of the span that begins at `out`, a multiple of a sector: sectors that
// it does not fill by elements, so that others may write the rest of them.
template <class V, int kTiles, class T>
__device__ void store_tiles(T* out, int from, int to, const V (&tiles)[kTiles]) {
  constexpr int kCount = sizeof(V) / sizeof(T);
  using W = Word<T, kCount>;
  constexpr int kSector = kSectorBytes / sizeof(T), kTile = kWarpLanes * kCount;
  const int lane = lane_of_warp();
  const int first = kCount == 1 ? from : (from + kSector - 1) / kSector * kSector;
  const int last = kCount == 1 ? to : to / kSector * kSector;
#pragma unroll
#pragma GCC unroll 40
  for (int tile = 0; tile < kTiles; ++tile) {
    const int i = tile * kWarpLanes + lane;
    if (i * kCount >= first && i * kCount < last) reinterpret_cast<W*>(out)[i] = tiles[tile];
  }
  if constexpr (kCount != 1) {
    // The same lanes have them that would write the sector.
    const auto store_part = [&](int begin, int end) __attribute__((always_inline)) {
      if (begin >= end) return;
      W word = 0;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const W here = tiles[tile];
        word |= begin / kTile == tile ? here : W{0};
      }
      const int i = begin + lane;
      const W of_other = of_lane<W>(word, i / kCount % kWarpLanes);
      const auto bits = static_cast<Word<T, 1>>(of_other >> 8 * sizeof(T) * (i % kCount));
      if (i < end) reinterpret_cast<Word<T, 1>*>(out)[i] = bits;
    };
    store_part(from, to < first ? to : first);
    store_part(last < first ? first : last, to);
  }
}

// The span `by` elements of T, fewer than a sector's, later; what comes before and behind is
// anything.
template <class T, class W, int kTiles>
__device__ void delay_tiles(W (&later)[kTiles + 1], const W (&tiles)[kTiles], int by) {
  constexpr int kCount = sizeof(W) / sizeof(T), kWordBits = 8 * sizeof(W);
  const int lane = lane_of_warp();
  // The word that lies `words` words before this lane's.
  const auto before = [&](int tile, int words) __attribute__((always_inline)) {
    const W same = tile < kTiles ? tiles[tile] : W{0};
    const W earlier = tile > 0 ? tiles[tile - 1] : W{0};
    const W given = chosen(lane + words < kWarpLanes, same, earlier);
    return of_lane<W>(given, (lane - words) & (kWarpLanes - 1));
  };
  const int words = by / kCount, bits = by % kCount * 8 * static_cast<int>(sizeof(T));
#pragma unroll
  for (int tile = 0; tile <= kTiles; ++tile) {
    W word = tile < kTiles ? tiles[tile] : W{0};
    if (by != 0) word = before(tile, words);
    if (bits != 0) {
      const W low = before(tile, words + 1);
      word = static_cast<W>(word << bits | low >> (kWordBits - bits));
    }
    later[tile] = word;
  }
}

}  // namespace motley
