#include "runtime/permutation.h"

#include <bit>
#include <cassert>

#include "runtime/scramble.h"

namespace motley::runtime {
namespace {

constexpr int kRounds = 6;

}  // namespace

Permutation::Permutation(std::int64_t count, std::uint64_t seed) noexcept
    : count_(static_cast<std::uint64_t>(count)), seed_(scramble(seed)) {
  if (count_ > 2) half_bits_ = (std::bit_width(count_ - 1) + 1) / 2;
}

std::int64_t Permutation::operator()(std::int64_t position) const noexcept {
  assert(position >= 0 && static_cast<std::uint64_t>(position) < count_);
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  auto value = static_cast<std::uint64_t>(position);
  do {
    std::uint64_t left = value >> half_bits_, right = value & mask;
    for (int round = 0; round < kRounds; ++round) {
      const std::uint64_t next =
          left ^ (mix_bits(seed_ + right * kRounds + static_cast<unsigned>(round)) & mask);
      left = right;
      right = next;
    }
    value = left << half_bits_ | right;
  } while (value >= count_);
  return static_cast<std::int64_t>(value);
}

}  // namespace motley::runtime
