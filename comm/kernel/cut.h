// comm/kernel/cut.h: how kernels cut buffers into packs of elements that are loaded and stored at
// once.
//
// Packs of `out` begin at a sector of memory. Where a source does not begin at a pack's multiple
// there ("crooked"), each of its packs lies across two aligned words, which packs.cuh joins. No
// word reaches beyond the ends of its buffer. Elements before the first pack and behind the last
// are taken one by one.
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

// What devices read and write at once, at multiples of it.
inline constexpr std::size_t kSectorBytes = 32;

// Buffers of out.count elements, each at a multiple of its element's size. Fewer elements than two
// sectors and two packs have are single.
inline Cut cut(ConstView out, std::span<const ConstView> sources, std::size_t pack) {
  // Elements between `view` and the multiple of so many that lies before it.
  const auto phase = [](const ConstView& view, std::size_t multiple) {
    const auto address = reinterpret_cast<std::uintptr_t>(view.data);
    assert(address % size_bytes(view.dtype) == 0);
    return address / size_bytes(view.dtype) % multiple;
  };
  const std::size_t n = out.count;
  const std::size_t sector = kSectorBytes / size_bytes(out.dtype);
  std::size_t head = (sector - phase(out, sector)) % sector;
  const auto crook = [&](const ConstView& in) { return (phase(in, pack) + head) % pack; };
  // The first word of a crooked source begins within it, and so does its last one.
  if (std::ranges::any_of(sources, [&](const ConstView& in) { return crook(in) > head; }))
    head += sector;
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
