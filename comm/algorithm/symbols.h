// comm/algorithm/symbols.h: what chunks hold while schedules are checked: for each block, whose
// terms were combined, and how.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace motley {

// Sums of the ranks' terms as symbols: equal symbols mean equal terms of the same block, combined
// in the same order.
class Symbols {
 public:
  static constexpr int kNothing = 0;  // what was never written

  Symbols(int ranks, int blocks);

  // The term of `rank` for `block`, alone.
  int leaf(int rank, int block) const noexcept { return 1 + rank * blocks_ + block; }
  // Terms of different blocks have no sum: the result is right nowhere.
  int combine(int a, int b);

  // Of which block it is; -1: of several.
  int block(int symbol) const noexcept { return block_[static_cast<std::size_t>(symbol)]; }
  bool has(int symbol, int rank) const noexcept { return bit(once_, symbol, rank); }
  bool has_twice(int symbol, int rank) const noexcept { return bit(twice_, symbol, rank); }

 private:
  std::size_t at(int symbol) const noexcept { return static_cast<std::size_t>(symbol) * words_; }
  int add(int block);
  bool bit(const std::vector<std::uint64_t>& sets, int symbol, int rank) const noexcept {
    return (sets[at(symbol) + static_cast<std::size_t>(rank) / 64] >> rank % 64 & 1) != 0;
  }

  int blocks_;
  std::size_t words_;
  std::vector<int> block_;            // by symbol
  std::vector<std::uint64_t> once_;   // by symbol: ranks whose term is in it
  std::vector<std::uint64_t> twice_;  // by symbol: ranks whose term is in it more than once
  std::map<std::pair<int, int>, int> known_;
};

}  // namespace motley
