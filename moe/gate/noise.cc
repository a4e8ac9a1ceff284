#include "moe/gate/noise.h"

#include <algorithm>
#include <cmath>

namespace motley::moe::gate {
namespace {

constexpr double kLeastDeviation = 0.01;

double softplus(double z) { return std::max(z, 0.0) + std::log1p(std::exp(-std::abs(z))); }

}  // namespace

bool has_noise(const GateOptions& options, GateMode mode) {
  return mode == GateMode::kTrain &&
         (options.noise != GateNoise::kNone || options.kind == GateKind::kDenseToSparse);
}

void deviation_of(const GateOptions& options, In raw, Out deviation) {
  for (std::size_t e = 0; e < raw.size(); ++e) {
    deviation[e] = options.noise_scale * softplus(raw[e]) + kLeastDeviation;
  }
}

void deviation_backward(const GateOptions& options, In deviation, Out gradient) {
  // softplus' = sigmoid = 1 - exp(-softplus)
  for (std::size_t e = 0; e < gradient.size(); ++e) {
    const double soft = (deviation[e] - kLeastDeviation) / options.noise_scale;
    gradient[e] *= options.noise_scale * -std::expm1(-soft);
  }
}

double constant_deviation(const GateOptions& options) {
  return options.noise_scale / options.experts;
}

void add_noise(const GateOptions& options, const GateInput& input, std::size_t token, In deviation,
               Out logits) {
  if (options.kind == GateKind::kDenseToSparse) {
    const Lots lots(input, Purpose::kGumbel, token);
    for (std::size_t e = 0; e < logits.size(); ++e) logits[e] += lots.gumbel(e);
    return;
  }
  const Lots lots(input, Purpose::kNoise, token);
  for (std::size_t e = 0; e < logits.size(); ++e) {
    const double size = deviation.empty() ? constant_deviation(options) : deviation[e];
    logits[e] += size * lots.normal(e);
  }
}

}  // namespace motley::moe::gate
