#include "runtime/seed.h"

#include "runtime/scramble.h"

namespace motley::runtime {

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
