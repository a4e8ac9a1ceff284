#include "comm/algorithm/symbols.h"

#include <algorithm>

namespace motley {

Symbols::Symbols(int ranks, int blocks)
    : blocks_(blocks), words_((static_cast<std::size_t>(ranks) + 63) / 64) {
  add(-1);  // kNothing
  for (int rank = 0; rank < ranks; ++rank) {
    for (int b = 0; b < blocks; ++b) {
      once_[at(add(b)) + static_cast<std::size_t>(rank) / 64] |= std::uint64_t{1} << rank % 64;
    }
  }
}

int Symbols::combine(int a, int b) {
  if (a == kNothing || b == kNothing) return a + b;
  const auto [entry, is_new] = known_.try_emplace(std::minmax(a, b), 0);
  if (is_new) {
    entry->second = add(block(a) == block(b) ? block(a) : -1);
    const std::size_t sum = at(entry->second);
    for (std::size_t i = 0; i < words_; ++i) {
      once_[sum + i] = once_[at(a) + i] | once_[at(b) + i];
      twice_[sum + i] =
          twice_[at(a) + i] | twice_[at(b) + i] | (once_[at(a) + i] & once_[at(b) + i]);
    }
  }
  return entry->second;
}

int Symbols::add(int block) {
  block_.push_back(block);
  once_.resize(once_.size() + words_);
  twice_.resize(twice_.size() + words_);
  return static_cast<int>(block_.size()) - 1;
}

}  // namespace motley
