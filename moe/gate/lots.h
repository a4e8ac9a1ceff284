// moe/gate/lots.h: random numbers as functions of (seed, step, token id, what for, which).
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "moe/digest.h"
#include "moe/gate.h"

namespace motley::moe::gate {

enum class Purpose : std::uint8_t { kJitter, kNoise, kGumbel };

// In (0, 1): of 52 bits, as with 53 half a step more than the largest would round to 1.
inline double inside_unit(std::uint64_t bits) noexcept {
  return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
}

// The numbers of one token for one purpose, by index.
class Lots {
 public:
  Lots(const GateInput& input, Purpose purpose, std::size_t token)
      : key_(Digest()
                 .add(input.seed)
                 .add(input.step)
                 .add(input.token.empty() ? static_cast<std::int64_t>(token) : input.token[token])
                 .add(static_cast<int>(purpose))
                 .value()) {}

  double uniform(std::size_t i) const { return inside_unit(bits(i)); }
  // Mean 0, deviation 1: Box and Muller 1958.
  double normal(std::size_t i) const {
    return std::sqrt(-2 * std::log(uniform(2 * i))) *
           std::cos(2 * std::numbers::pi * uniform(2 * i + 1));
  }
  double gumbel(std::size_t i) const { return -std::log(-std::log(uniform(i))); }

 private:
  std::uint64_t bits(std::size_t i) const { return Digest().add(key_ ^ i).add(i).value(); }

  std::uint64_t key_;
};

}  // namespace motley::moe::gate
