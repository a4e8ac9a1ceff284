#include "moe/balance.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "comm/error.h"

namespace motley::moe {
namespace {

using In = std::span<const double>;
using Out = std::span<double>;

double sum_of(In values) { return std::accumulate(values.begin(), values.end(), 0.0); }

// E * f_e / n for counts that make up f_e: what P's sums are multiplied by.
double share_factor(const BalanceStatistics& statistics, In counts) {
  const double all = sum_of(counts);
  return all == 0 ? 0 : statistics.experts() / (all * statistics.tokens());
}

double share_loss(const BalanceStatistics& statistics, In counts) {
  const In probability = statistics.probability();
  return share_factor(statistics, counts) *
         std::inner_product(counts.begin(), counts.end(), probability.begin(), 0.0);
}

void add_share_gradient(const BalanceStatistics& statistics, In counts, double scale,
                        Out gradient) {
  const double factor = scale * share_factor(statistics, counts);
  for (std::size_t e = 0; e < counts.size(); ++e) gradient[e] += factor * counts[e];
}

// variance / mean^2
double variation(In values) {
  const double mean = sum_of(values) / static_cast<double>(values.size());
  if (mean == 0) return 0;
  double variance = 0;
  for (const double v : values) variance += (v - mean) * (v - mean);
  return variance / static_cast<double>(values.size()) / (mean * mean);
}

// It is square / mean^2 - 1, differentiated: 2 (v - square / mean) / (E mean^2).
void add_variation_gradient(In values, double scale, Out gradient) {
  const auto count = static_cast<double>(values.size());
  const double mean = sum_of(values) / count;
  if (mean == 0) return;
  const double square =
      std::inner_product(values.begin(), values.end(), values.begin(), 0.0) / count;
  for (std::size_t e = 0; e < values.size(); ++e) {
    gradient[e] += scale * 2 * (values[e] - square / mean) / (count * mean * mean);
  }
}

}  // namespace

void validate(const BalanceScales& scales) {
  const std::array<std::pair<const char*, double>, 6> all = {{{"first_choice", scales.first_choice},
                                                              {"all_choices", scales.all_choices},
                                                              {"importance", scales.importance},
                                                              {"load", scales.load},
                                                              {"z", scales.z},
                                                              {"alignment", scales.alignment}}};
  for (const auto& [name, scale] : all) {
    if (std::isfinite(scale) && scale >= 0) continue;
    throw Error(ErrorCode::kInvalid,
                fmt::format("moe balance: the scale of {} is {}. It must be finite and at least 0.",
                            name, scale));
  }
}

BalanceStatistics::BalanceStatistics(int experts)
    : sums_(kPlain + kPerExpert * static_cast<std::size_t>(experts), 0.0) {}

void BalanceStatistics::add(const BalanceStatistics& other) {
  if (other.sums_.size() != sums_.size()) {
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("moe balance: sums over {} experts are added to sums over {}. Add those "
                    "of one gate.",
                    other.experts(), experts()));
  }
  for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += other.sums_[i];
}

BalanceLosses balance_losses(const BalanceStatistics& statistics, const BalanceScales& scales) {
  validate(scales);
  const double tokens = statistics.tokens();
  if (tokens == 0) return {};
  return {.first_choice = scales.first_choice * share_loss(statistics, statistics.first_count()),
          .all_choices = scales.all_choices * share_loss(statistics, statistics.choice_count()),
          .importance = scales.importance * variation(statistics.importance()),
          .load = scales.load * variation(statistics.load()),
          .z = scales.z * statistics.z() / tokens,
          .alignment = scales.alignment * statistics.alignment() / tokens};
}

BalanceStatistics balance_gradient(const BalanceStatistics& statistics,
                                   const BalanceScales& scales) {
  validate(scales);
  BalanceStatistics gradient(statistics.experts());
  const double tokens = statistics.tokens();
  if (tokens == 0) return gradient;
  add_share_gradient(statistics, statistics.first_count(), scales.first_choice,
                     gradient.probability());
  add_share_gradient(statistics, statistics.choice_count(), scales.all_choices,
                     gradient.probability());
  add_variation_gradient(statistics.importance(), scales.importance, gradient.importance());
  add_variation_gradient(statistics.load(), scales.load, gradient.load());
  gradient.z() = scales.z / tokens;
  gradient.alignment() = scales.alignment / tokens;
  return gradient;
}

}  // namespace motley::moe
