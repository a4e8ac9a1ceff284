// wide/read/distinct.h: whether the keys of a row are distinct, in one pass over them in any order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace motley::wide {

// A hash table from keys to the entries that have them. Entries of earlier rows count as empty
// slots, so that nothing is cleared between rows.
class Distinct {
 public:
  static constexpr std::size_t kMost = 512;  // entries of a row

  // Whether key(i) differs for all i in [begin, end), at most kMost. No entry may come before those
  // of the call before, unless that found equal ones.
  template <class Key>
  bool holds(std::size_t begin, std::size_t end, const Key& key) {
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint64_t mine = key(i);
      std::size_t slot = static_cast<std::size_t>((mine * 0x9e3779b97f4a7c15u) >> (64 - kBits));
      for (; behind_[slot] > begin; slot = (slot + 1) % behind_.size()) {
        if (key(behind_[slot] - 1) == mine) return false;
      }
      behind_[slot] = i + 1;
    }
    return true;
  }

 private:
  static constexpr int kBits = 10;
  std::array<std::size_t, std::size_t{1} << kBits> behind_{};  // entry + 1; 0: none
};

}  // namespace motley::wide
