#include "moe/reference/expert.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace motley::moe::reference {
namespace {

double normal_distribution(double z) { return 0.5 * std::erfc(-z / std::numbers::sqrt2); }

double normal_density(double z) {
  return std::exp(-0.5 * z * z) * 0.5 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
}

double sigmoid(double z) { return 1 / (1 + std::exp(-z)); }

}  // namespace

double activate(Activation activation, double z) {
  switch (activation) {
    case Activation::kRelu:
      return std::max(z, 0.0);
    case Activation::kGelu:
      return z * normal_distribution(z);
    case Activation::kSilu:
      return z * sigmoid(z);
  }
  return z;
}

double activation_slope(Activation activation, double z) {
  switch (activation) {
    case Activation::kRelu:
      return z > 0 ? 1 : 0;
    case Activation::kGelu:
      return normal_distribution(z) + z * normal_density(z);
    case Activation::kSilu: {
      const double s = sigmoid(z);
      return s * (1 + z * (1 - s));
    }
  }
  return 1;
}

void expert_forward(const ExpertSlot<In>& weights, Activation activation, In x,
                    const ExpertValues& values) {
  std::ranges::copy(weights.b1, values.hidden.begin());
  add_product(values.hidden, weights.w1, x);
  std::vector<double> active(values.hidden.size());
  for (std::size_t i = 0; i < active.size(); ++i) {
    active[i] = activate(activation, values.hidden[i]);
  }
  std::ranges::copy(weights.b2, values.output.begin());
  add_product(values.output, weights.w2, active);
}

void expert_backward(const ExpertSlot<In>& weights, Activation activation, const ExpertCall& call,
                     const ExpertGradients& gradients) {
  const std::size_t h = call.hidden.size();
  std::vector<double> active(h);
  for (std::size_t i = 0; i < h; ++i) active[i] = activate(activation, call.hidden[i]);
  add_outer(gradients.weights.w2, call.doutput, active);
  add_scaled(gradients.weights.b2, 1, call.doutput);

  std::vector<double> dhidden(h, 0.0);
  add_transposed_product(dhidden, weights.w2, call.doutput);
  for (std::size_t i = 0; i < h; ++i) dhidden[i] *= activation_slope(activation, call.hidden[i]);
  add_outer(gradients.weights.w1, dhidden, call.x);
  add_scaled(gradients.weights.b1, 1, dhidden);
  add_transposed_product(gradients.dx, weights.w1, dhidden);
}

}  // namespace motley::moe::reference
