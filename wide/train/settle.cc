#include "wide/train/settle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "comm/error.h"
#include "wide/option_error.h"

namespace motley::wide {
namespace {

constexpr std::size_t kGroup = 32;  // rows that stay neighbours in all epochs

}  // namespace

Dataset chosen(Dataset train, const TrainOptions& o) {
  if (train.rows() == 0) throw Error(ErrorCode::kInvalid, "train: the data set has no rows");
  train = chosen_part(std::move(train), 0, o);
  if (train.rows() == 0) {
    throw OptionError("train", "negative_rate",
                      fmt::format("is {}, which leaves no rows. Raise it", o.negative_rate));
  }
  return train;
}

Dataset chosen_part(Dataset train, std::uint64_t first, const TrainOptions& o) {
  if (o.negative_rate < 1) {
    std::mt19937_64 random(o.seed ^ 0x6e65676174697665u);
    random.discard(first);
    std::vector<std::uint64_t> kept;
    for (std::size_t r = 0; r < train.rows(); ++r) {
      const auto drawn = static_cast<double>(random() >> 11) * 0x1p-53;
      if (train.labels[r] > 0 || drawn < static_cast<double>(o.negative_rate)) kept.push_back(r);
    }
    train = rows_of(train, kept);
  }
  if (o.positive_weight != 1) {
    if (train.weights.empty()) train.weights.assign(train.rows(), 1.0f);
    for (std::size_t r = 0; r < train.rows(); ++r) {
      if (train.labels[r] > 0) train.weights[r] *= o.positive_weight;
    }
  }
  return train;
}

UpdateOptions update_options(const TrainOptions& o) {
  const float grown = std::sqrt(static_cast<float>(o.size));
  return {.learning_rate = o.learning_rate * grown,
          .learning_rate_factors = o.learning_rate_factors * grown,
          .l1 = o.l1,
          .l2 = o.l2,
          .l1_factors = o.l1_factors,
          .l2_factors = o.l2_factors,
          .batch_rows = o.batch_rows};
}

void begin_at_mean(const ModelOptions& model, const Dataset& train, float* shared) {
  if (model.loss != Loss::kSquared) return;
  const double sum = std::accumulate(train.labels.begin(), train.labels.end(), 0.0);
  begin_at_mean(model, sum / static_cast<double>(train.rows()), shared);
}

void begin_at_mean(const ModelOptions& model, double mean_label, float* shared) {
  if (model.loss == Loss::kSquared) shared[Layout::kBias] = static_cast<float>(mean_label);
}

void settle_ftrl(const ModelOptions& model, const UpdateOptions& rates, const Layout& layout,
                 float* state) {
  if (model.optimizer != Optimizer::kFtrl) return;
  const auto settle = [&](std::size_t weight, std::size_t stride, float rate, float l1, float l2) {
    float* const s = state + weight;
    if (s[0] == 0) return;
    s[stride] = -s[0] * (Rates{}.beta / rate + l2) - std::copysign(l1, s[0]);
  };
  for (std::size_t i = 0; i < layout.shared; ++i)
    settle(i, layout.shared, rates.learning_rate, 0, 0);
  for (std::size_t slot = 0; slot < layout.slots; ++slot) {
    settle(layout.linear(slot), 1, rates.learning_rate, rates.l1, rates.l2);
    for (std::size_t d = 0; d < layout.width; ++d) {
      settle(layout.factors_of(slot) + d, layout.width, rates.learning_rate_factors,
             rates.l1_factors, rates.l2_factors);
    }
  }
}

std::vector<std::uint64_t> shuffled(std::size_t n, std::uint64_t seed) {
  std::vector<std::uint64_t> order(n);
  std::iota(order.begin(), order.end(), std::uint64_t{0});
  std::mt19937_64 random(seed);
  for (std::size_t i = n; i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  return order;
}

std::vector<std::uint64_t> order_of_epoch(std::size_t rows, int epoch,
                                          const TrainOptions& options) {
  std::vector<std::uint64_t> order(rows);
  std::iota(order.begin(), order.end(), std::uint64_t{0});
  if (!options.shuffles) return order;
  const auto groups =
      shuffled((rows + kGroup - 1) / kGroup,
               options.seed * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(epoch) + 1);
  std::size_t next = 0;
  for (const std::uint64_t group : groups) {
    const std::uint64_t end = std::min<std::uint64_t>((group + 1) * kGroup, rows);
    for (std::uint64_t row = group * kGroup; row < end; ++row) order[next++] = row;
  }
  return order;
}

}  // namespace motley::wide
