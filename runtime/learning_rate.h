// runtime/learning_rate.h: learning rates by the samples that all workers have trained on together,
// so that a schedule is the same however many workers there are, and when some join or leave.
//
//   LearningRate schedule({.base = 0.1, .warmup_samples = 50'000, .decay = Decay::kCosine,
//                          .total_samples = 5'000'000});
//   optimizer.set_learning_rate(schedule.at(samples));
#pragma once

#include <cstdint>

namespace motley::runtime {

// What follows the warm-up. With u = the share of [warmup_samples, total_samples] that is done, in
// [0, 1]:
enum class Decay : std::uint8_t {
  kConstant,    // base
  kStep,        // base * step_factor^k after k times step_samples, counted from sample 0
  kPolynomial,  // final + (base - final) * (1 - u)^power
  kCosine,      // final + (base - final) * (1 + cos(pi * u)) / 2
};

struct LearningRateOptions {
  double base = 0.1;
  std::int64_t warmup_samples = 0;  // linearly from warmup_start to base
  double warmup_start = 0;
  Decay decay = Decay::kConstant;
  std::int64_t step_samples = 0;   // kStep: above 0
  double step_factor = 0.1;        // kStep
  std::int64_t total_samples = 0;  // kPolynomial, kCosine: above warmup_samples; then final
  double final = 0;                // kPolynomial, kCosine
  double power = 1;                // kPolynomial: 1 is linear
};

class LearningRate {
 public:
  // Throws kInvalid for rates and counts that are negative or not finite, and as said above.
  explicit LearningRate(const LearningRateOptions& options);
  // The rate of the step that begins after `samples` samples of all workers; samples >= 0.
  double at(std::int64_t samples) const;

 private:
  LearningRateOptions options_;
};

}  // namespace motley::runtime
