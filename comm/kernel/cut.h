// comm/kernel/cut.h: how kernels cut buffers into packs of elements that are loaded and stored at
// once.
//
// Packs of `out` start at multiples of their size. Where a source lies otherwise ("crooked"), each
// of its packs lies across two aligned words, which packs.cuh joins. No word reaches beyond the
// ends of its buffer. Elements before the first pack and behind the last are taken one by one.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/view.h"

namespace motley {

struct Cut {
  std::size_t n = 0;      // elements of each buffer
  std::size_t head = 0;   // of them before the first pack
  std::size_t packs = 0;  // packs
  std::size_t pack = 1;   // elements of one

  constexpr std::size_t single() const { return n - packs * pack; }  // elements in no pack
  // The index of the k-th of them.
  constexpr std::size_t single_at(std::size_t k) const { return k < head ? k : k + packs * pack; }
};

// Buffers of out.count elements, each at a multiple of its element's size. At most 4 * pack
// elements are single.
inline Cut cut(ConstView out, std::span<const ConstView> sources, std::size_t pack) {
  // Elements between `view` and the start of the word that it lies in.
  const auto phase = [pack](const ConstView& view) {
    const auto address = reinterpret_cast<std::uintptr_t>(view.data);
    assert(address % size_bytes(view.dtype) == 0);
    return address / size_bytes(view.dtype) % pack;
  };
  const std::size_t n = out.count;
  std::size_t head = (pack - phase(out)) % pack;
  const auto crook = [&](const ConstView& in) { return (phase(in) + head) % pack; };
  // The first word of a crooked source begins within it, and so does its last one.
  if (std::ranges::any_of(sources, [&](const ConstView& in) { return crook(in) > head; }))
    head += pack;
  if (head >= n) return {n, n, 0, pack};
  std::size_t packs = (n - head) / pack;
  for (const ConstView& in : sources) {
    if (crook(in) == 0) continue;
    const std::size_t words = (n - head + crook(in)) / pack;
    packs = std::min(packs, words == 0 ? 0 : words - 1);
  }
  return packs == 0 ? Cut{n, n, 0, pack} : Cut{n, head, packs, pack};
}

}  // namespace motley
