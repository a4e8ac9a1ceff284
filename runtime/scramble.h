// runtime/scramble.h: SplitMix64, the mixing behind seeds and orders of samples: G. Steele,
// D. Lea, C. Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014, figures 15, 16.
#pragma once

#include <cstdint>

namespace motley::runtime {

// A bijection that mixes all bits into all, and leaves 0 as it is.
constexpr std::uint64_t mix_bits(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// One step: the same of the next state.
constexpr std::uint64_t scramble(std::uint64_t x) noexcept {
  return mix_bits(x + 0x9e3779b97f4a7c15u);
}

}  // namespace motley::runtime
