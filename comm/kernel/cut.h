// comm/kernel/cut.h: how kernels cut buffers into packs of elements that are stored at once.
//
// Packs of `out` begin at a sector of memory. Elements before the first pack and behind the last
// are taken one by one. How packs of sources are read that do not begin there: tiles.cuh.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>

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

// `out` is at a multiple of its element's size. Fewer elements than a sector and a pack have are
// single.
inline Cut cut(ConstView out, std::size_t pack) {
  const auto address = reinterpret_cast<std::uintptr_t>(out.data);
  const std::size_t element = size_bytes(out.dtype), n = out.count;
  assert(address % element == 0);
  const std::size_t head = (kSectorBytes - address % kSectorBytes) % kSectorBytes / element;
  if (head >= n) return {n, n, 0, pack};
  const std::size_t packs = (n - head) / pack;
  return packs == 0 ? Cut{n, n, 0, pack} : Cut{n, head, packs, pack};
}

}  // namespace motley
