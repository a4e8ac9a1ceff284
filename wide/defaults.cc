#include "wide/defaults.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace motley::wide {
namespace {

// An FM by AdaGrad has a prior instead of a shrinkage at every step, and averages its states.
bool averages(const ModelOptions& model) {
  return model.kind == ModelKind::kFm && model.optimizer == Optimizer::kAdaGrad;
}

// A step of SGD is as long as the slope says, and that of the squared hinge grows without end.
bool is_steep(const ModelOptions& model) {
  const Loss loss = model.loss == Loss::kDefault ? default_loss(model.kind) : model.loss;
  return loss == Loss::kSquaredHinge && model.optimizer == Optimizer::kSgd;
}

// A step of all factors of a row moves the score by what grows with the number of features.
float factors_rate(double features) { return static_cast<float>(std::min(0.6, 6 / features)); }

}  // namespace

double sum_of_features(const Dataset& data) {
  double sum = 0;
  for (std::size_t r = 0; r < data.rows(); ++r) {
    double absolute = 0;
    double squares = 0;
    for (auto e = data.row_begin[r]; e < data.row_begin[r + 1]; ++e) {
      const double x = data.value(e);
      absolute += std::abs(x);
      squares += x * x;
    }
    if (squares > 0) sum += absolute * absolute / squares;
  }
  return sum;
}

double mean_features(const Dataset& data) {
  return std::max(
      1.0, sum_of_features(data) / static_cast<double>(std::max<std::size_t>(data.rows(), 1)));
}

TrainOptions settled(TrainOptions o, const Dataset& train, bool validates) {
  const bool looked_at = o.learning_rate_factors < 0 && o.learning_rate <= 0 && averages(o.model);
  return settled(std::move(o), looked_at ? mean_features(train) : 1, validates);
}

TrainOptions settled(TrainOptions o, double features, bool validates) {
  check(o);
  const bool squared = o.model.loss == Loss::kSquared;
  const bool fm = averages(o.model);
  const bool linear = !has_factors(o.model.kind);
  if (o.epochs == 0) o.epochs = validates ? 100 : 20;
  const bool rate_given = o.learning_rate > 0;
  if (!rate_given) {
    const bool adagrad = o.model.optimizer == Optimizer::kAdaGrad;
    o.learning_rate = linear ? (adagrad ? 0.25f : 0.2f) : fm ? 0.3f : 0.1f;
    if (squared) o.learning_rate /= fm ? 3 : 4;
    if (is_steep(o.model)) o.learning_rate = 0.02f;
    if (o.model.optimizer == Optimizer::kAdam) o.learning_rate /= 20;
  }
  if (o.learning_rate_factors < 0) {
    o.learning_rate_factors =
        rate_given || !fm ? o.learning_rate : factors_rate(features) / (squared ? 3 : 1);
  }
  if (o.prior_factors < 0) {
    o.prior_factors = !fm || o.l2_factors >= 0 ? 0.0f : squared ? 6.0f : 2.0f;
  }
  if (o.l2_factors < 0) {
    o.l2_factors = o.prior_factors > 0               ? 0.0f
                   : squared                         ? 2e-2f
                   : o.model.kind == ModelKind::kFfm ? 1e-4f
                                                     : 5e-4f;
  }
  if (o.average < 0) o.average = fm ? 0.3f : 0.0f;
  if (o.initial_accumulator < 0) o.initial_accumulator = linear ? 1.0f : fm ? 0.5f : 0.1f;
  return o;
}

}  // namespace motley::wide
