// comm/kernel/packs.cuh: loads and stores of several elements at once, and kernels made of one
// function of an element. Neighbouring lanes touch neighbouring words.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "comm/kernel/cut.h"
#include "comm/kernel/launch.cuh"

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

// `word` of the next lane.
template <class W>
__device__ W of_next_lane(W word) {
  constexpr unsigned kAll = 0xffffffffu;
  if constexpr (sizeof(W) == 16) {
    const auto low = __shfl_down_sync(kAll, static_cast<unsigned long long>(word), 1);
    const auto high = __shfl_down_sync(kAll, static_cast<unsigned long long>(word >> 64), 1);
    return static_cast<W>(high) << 64 | low;
  } else if constexpr (sizeof(W) == 8) {
    return __shfl_down_sync(kAll, static_cast<unsigned long long>(word), 1);
  } else {
    return __shfl_down_sync(kAll, word, 1);
  }
}

// Pack i of those that start at `first`; anything from pack `packs` on. All lanes of a warp call it
// together, with consecutive i.
template <int kCount, class T>
__device__ Pack<T, kCount> load_pack(const T* first, std::size_t i, std::size_t packs) {
  using W = Word<T, kCount>;
  const auto address = reinterpret_cast<std::uintptr_t>(first);
  const unsigned crook = address % sizeof(W);
  const W* const words = reinterpret_cast<const W*>(address - crook);
  W word = 0;
  if (crook == 0) {
    if (i < packs) word = words[i];
  } else {
    if (i <= packs) word = words[i];  // one more: see cut.h
    W next = of_next_lane(word);
    if (threadIdx.x % 32 == 31 && i < packs) next = words[i + 1];
    word = word >> 8 * crook | next << 8 * (sizeof(W) - crook);
  }
  return std::bit_cast<Pack<T, kCount>>(word);
}

template <int kCount, class T>
__device__ void store_pack(T* first, std::size_t i, const Pack<T, kCount>& pack) {
  reinterpret_cast<Word<T, kCount>*>(first)[i] = std::bit_cast<Word<T, kCount>>(pack);
}

constexpr int kPackThreads = 256;
constexpr int kPackBlocks = 3;  // at once on a multiprocessor: at most 80 registers a thread

// Blocks whose threads take `ahead` packs at once.
inline LaunchShape shape_of(const Cut& cut, std::size_t ahead) {
  const std::size_t threads = cut.packs / ahead + 1;
  return {.grid = blocks_for(threads, kPackThreads), .block = kPackThreads};
}

// Elements of a pack of which the wider type fills 16 bytes.
template <class To, class From>
constexpr int kPackOf = 16 / (sizeof(To) > sizeof(From) ? sizeof(To) : sizeof(From));

// out[i] = function(in[i]). A block takes several packs a thread at once, whose loads are on the
// way together.
template <class To, class From>
constexpr int kPacksAhead = kPackOf<To, From> == 16 ? 2 : 4;

template <class To, class From, class Function>
__global__ void __launch_bounds__(kPackThreads, kPackBlocks)
    map_kernel(To* out, const From* in, Cut cut, Function function) {
  constexpr int kPack = kPackOf<To, From>;
  constexpr int kAhead = kPacksAhead<To, From>;
  constexpr std::size_t kTile = kAhead * kPackThreads;
  for (std::size_t base = blockIdx.x * kTile; base < cut.packs; base += gridDim.x * kTile) {
    Pack<From, kPack> from[kAhead];
    for (int ahead = 0; ahead < kAhead; ++ahead)
      from[ahead] =
          load_pack<kPack>(in + cut.head, base + ahead * kPackThreads + threadIdx.x, cut.packs);
    for (int ahead = 0; ahead < kAhead; ++ahead) {
      const std::size_t i = base + ahead * kPackThreads + threadIdx.x;
      Pack<To, kPack> to;
      for (int k = 0; k < kPack; ++k) to.x[k] = function(from[ahead].x[k]);
      if (i < cut.packs) store_pack(out + cut.head, i, to);
    }
  }
  if (blockIdx.x == 0 && threadIdx.x < cut.single()) {
    const std::size_t i = cut.single_at(threadIdx.x);
    out[i] = function(in[i]);
  }
}

// The same of whole views, in stream order.
template <class To, class From, class Function>
void map_on_device(View out, ConstView in, Function function, StreamRef stream) {
  if (out.count == 0) return;  // an empty grid is a launch error
  const Cut by = cut(out, {&in, 1}, kPackOf<To, From>);
  launch(map_kernel<To, From, Function>, shape_of(by, kPacksAhead<To, From>), stream,
         out.as<To>().data(), in.as<const From>().data(), by, function);
}

}  // namespace motley
