// comm/algorithm/halvings.h: a number of ranks halved, rounding up, until one is left.
#pragma once

#include <bit>

namespace motley {

// How often: ceil(log2 n).
inline int halvings(int n) { return std::bit_width(static_cast<unsigned>(n - 1)); }

// What is left of `n` after `times` halvings: ceil(n / 2^times).
inline int after_halvings(int n, int times) {
  return static_cast<int>((static_cast<long>(n) + (1L << times) - 1) >> times);
}

}  // namespace motley
