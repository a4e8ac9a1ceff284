// runtime/permutation.h: an order of any number of samples that takes no memory.
#pragma once

#include <cstdint>

namespace motley::runtime {

// A bijection on [0, count), which looks random and is the same for the same count and seed on
// every machine. Cost: some 20 ns a call. A Feistel network whose steps outside of the range are
// walked on from: J. Black, P. Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002,
// section 3, "cycle walking".
class Permutation {
 public:
  Permutation(std::int64_t count, std::uint64_t seed) noexcept;
  // `position` in [0, count).
  std::int64_t operator()(std::int64_t position) const noexcept;

 private:
  std::uint64_t count_;
  std::uint64_t seed_;
  int half_bits_ = 1;
};

}  // namespace motley::runtime
