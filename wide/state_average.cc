#include "wide/state_average.h"

#include <algorithm>
#include <cmath>

namespace motley::wide {

void StateAverage::take(std::span<const float> state) {
  if (taken_ == 0) average_.assign(state.size(), 0.0f);
  ++taken_;
  const float share = std::max(newest_, 1 / static_cast<float>(taken_));
  float* const average = average_.data();
  for (std::size_t i = 0; i < state.size(); ++i) average[i] += share * (state[i] - average[i]);
}

void step_prior(const ModelOptions& options, const Layout& layout, float rate, float prior,
                std::span<float> state) {
  if (prior <= 0) return;
  const bool adaptive = options.optimizer == Optimizer::kAdaGrad;
  for (std::size_t slot = 0; slot < layout.slots; ++slot) {
    float* const v = &state[layout.factors_of(slot)];
    const float* const squares = v + layout.width;  // AdaGrad's sums
    for (std::size_t d = 0; d < layout.width; ++d) {
      v[d] /= 1 + rate * prior / (adaptive ? std::sqrt(squares[d]) : 1.0f);
    }
  }
}

}  // namespace motley::wide
