// wide/kernel/loss_sum.h: the sum of losses of some rows, and the slope of each.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "wide/loss.h"

namespace motley::wide {

// exp(x) for x at most 0, to 2e-7 of it; below -87 as at -87. x = k log 2 + r, and a Taylor series
// of r, in an order of which few steps wait for each other.
[[gnu::always_inline]] inline float exp_of_negative(float x) {
  x = x < -87.0f ? -87.0f : x;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: what is added to it is rounded
  const float k = (x * 1.44269504f + kRound) - kRound;
  const float r = (x - k * 0.693145752f) - k * 1.42860677e-6f;  // log 2 in two parts
  const float r2 = r * r;
  const float low = (1.0f + r) + r2 * (0.5f + r * (1.0f / 6));
  const float high = (1.0f / 24 + r * (1.0f / 120)) + r2 * (1.0f / 720 + r * (1.0f / 5040));
  const auto exponent = static_cast<std::uint32_t>(static_cast<std::int32_t>(k) + 127);
  return (low + r2 * r2 * high) * std::bit_cast<float>(exponent << 23);
}

// if_set or if_not, without a branch: which it is nobody can foresee, and a processor that guesses
// wrong has begun the next row in vain.
[[gnu::always_inline]] inline float choose(bool set, float if_set, float if_not) {
  const std::uint32_t mask = 0u - static_cast<std::uint32_t>(set);
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(if_set) & mask) |
                              (std::bit_cast<std::uint32_t>(if_not) & ~mask));
}

// One logarithm serves many rows, as log a + log b = log ab.
class LossSum {
 public:
  // Adds the loss of a row. Returns its slope by the score, times the row's weight. Inlined, as
  // the rows of a model wait for it one after the other.
  [[gnu::always_inline]] float add(Loss kind, float score, float label, float weight) noexcept {
    if (kind != Loss::kLogistic || weight != 1) return add_other(kind, score, label, weight);
    const float e = exp_of_negative(-std::abs(score));
    const float away = choose(label > 0, -score, score);
    sum_ += static_cast<double>(choose(away > 0, away, 0.0f));
    product_ *= 1.0 + static_cast<double>(e);
    if (product_ > 1e250) take_logarithm();
    return choose(std::signbit(score), e, 1.0f) / (1.0f + e) - label;
  }
  double sum() const noexcept;

 private:
  float add_other(Loss kind, float score, float label, float weight) noexcept;
  void take_logarithm() noexcept;

  double sum_ = 0;
  double product_ = 1;
};

}  // namespace motley::wide
