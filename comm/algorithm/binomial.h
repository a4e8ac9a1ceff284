// comm/algorithm/binomial.h: the binomial tree over 0 … size - 1, rooted at 0.
#pragma once

#include <algorithm>
#include <bit>

namespace motley {

// The subtree of `index` is [index, index + span): its children are index + 1, 2, 4, … within it.
struct Binomial {
  int index = 0;
  int span = 1;      // members of the subtree
  int children = 0;  // how many; child k is index + 2^k
  int parent = -1;   // -1: the root

  Binomial(int index_, int size) : index(index_) {
    const int reach =
        index == 0 ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(size))) : index & -index;
    span = std::min(reach, size - index);
    children = std::bit_width(static_cast<unsigned>(span - 1));
    if (index > 0) parent = index - reach;
  }

  int child(int k) const { return index + (1 << k); }
  // Members of the subtree of child k.
  int child_span(int k) const { return std::min(1 << k, span - (1 << k)); }
};

// Members of the largest subtree of a child of the root.
inline int largest_subtree(int size) {
  const Binomial root(0, size);
  int largest = 1;
  for (int k = 0; k < root.children; ++k) largest = std::max(largest, root.child_span(k));
  return largest;
}

}  // namespace motley
