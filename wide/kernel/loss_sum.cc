#include <cmath>

#include "wide/kernel/kernels.h"

namespace motley::wide {

float LossSum::add_other(Loss kind, float score, float label, float weight) noexcept {
  sum_ += static_cast<double>(weight) * loss_of(kind, static_cast<double>(score), label);
  return weight * slope_of(kind, score, label);
}

void LossSum::take_logarithm() noexcept {
  sum_ += std::log(product_);
  product_ = 1;
}

double LossSum::sum() const noexcept { return sum_ + std::log(product_); }

Rates rates_of_step(Optimizer optimizer, const Rates& rates, float t) noexcept {
  return optimizer == Optimizer::kAdam ? of_step<Adam>(rates, t) : rates;
}

}  // namespace motley::wide
