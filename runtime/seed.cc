#include "runtime/seed.h"

namespace motley::runtime {
namespace {

// One step of SplitMix64: G. Steele, D. Lea, C. Flood, "Fast Splittable Pseudorandom Number
// Generators", OOPSLA 2014, figures 15 and 16. A bijection that mixes all bits into all.
std::uint64_t scramble(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

std::uint64_t mix(const Seed& seed) noexcept {
  std::uint64_t state = scramble(seed.seed);
  const auto absorb = [&state](std::uint64_t word) { state = scramble(state ^ word); };
  absorb(static_cast<std::uint64_t>(seed.rank));
  absorb(static_cast<std::uint64_t>(seed.epoch));
  for (const char c : seed.purpose) absorb(static_cast<unsigned char>(c));
  absorb(seed.purpose.size());
  return state;
}

std::mt19937_64 make_generator(const Seed& seed) { return std::mt19937_64(mix(seed)); }

}  // namespace motley::runtime
