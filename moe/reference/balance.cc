#include "moe/reference/balance.h"

#include <numeric>
#include <vector>

namespace motley::moe::reference {
namespace {

// E * f_e: an expert's share of the choices, 1 where use is even.
std::vector<double> relative_shares(BalanceLoss rule, const ReferenceRouting& routing) {
  const auto k = static_cast<std::size_t>(routing.top_k);
  const std::size_t experts = routing.count.size();
  std::vector<double> shares(experts, 0.0);
  double choices = static_cast<double>(routing.tokens);
  if (rule == BalanceLoss::kFirstChoice) {
    for (std::size_t t = 0; t < routing.tokens; ++t) {
      shares[static_cast<std::size_t>(routing.expert[t * k])] += 1;
    }
  } else {
    choices *= static_cast<double>(k);
    for (std::size_t e = 0; e < experts; ++e) shares[e] = static_cast<double>(routing.count[e]);
  }
  for (double& share : shares) share *= static_cast<double>(experts) / choices;
  return shares;
}

// Sum of the weights that each expert got.
std::vector<double> importance(const ReferenceRouting& routing) {
  std::vector<double> sums(routing.count.size(), 0.0);
  for (std::size_t i = 0; i < routing.expert.size(); ++i) {
    sums[static_cast<std::size_t>(routing.expert[i])] += routing.weight[i];
  }
  return sums;
}

struct Moments {
  explicit Moments(In values)
      : mean(std::accumulate(values.begin(), values.end(), 0.0) /
             static_cast<double>(values.size())),
        square(dot(values, values) / static_cast<double>(values.size())) {}
  double mean;    // above 0: every token's best weight is at least 1/E
  double square;  // mean of squares
};

}  // namespace

double balance_loss(const LayerOptions& options, const ReferenceRouting& routing) {
  if (routing.tokens == 0 || options.balance == BalanceLoss::kNone) return 0;
  if (options.balance == BalanceLoss::kImportance) {
    const std::vector<double> sums = importance(routing);
    const double mean = Moments(sums).mean;
    double variance = 0;
    for (const double sum : sums) variance += (sum - mean) * (sum - mean);
    variance /= static_cast<double>(sums.size());
    return options.balance_scale * variance / (mean * mean);
  }
  const std::vector<double> shares = relative_shares(options.balance, routing);
  double sum = 0;
  for (std::size_t t = 0; t < routing.tokens; ++t) {
    sum += dot(row(In(routing.probability), t, shares.size()), shares);
  }
  return options.balance_scale * sum / static_cast<double>(routing.tokens);
}

void add_balance_gradient(const LayerOptions& options, const ReferenceRouting& routing,
                          const BalanceGradient& gradient) {
  const double scale = gradient.scale * options.balance_scale;
  if (routing.tokens == 0 || options.balance == BalanceLoss::kNone) return;
  if (options.balance == BalanceLoss::kImportance) {
    // square / mean^2 - 1, differentiated by one of the E sums: 2 (sum - square / mean) / (E
    // mean^2)
    const std::vector<double> sums = importance(routing);
    const Moments moments(sums);
    const double factor =
        2 * scale / (static_cast<double>(sums.size()) * moments.mean * moments.mean);
    for (std::size_t i = 0; i < routing.expert.size(); ++i) {
      const double sum = sums[static_cast<std::size_t>(routing.expert[i])];
      gradient.dweight[i] += factor * (sum - moments.square / moments.mean);
    }
    return;
  }
  const std::vector<double> shares = relative_shares(options.balance, routing);
  for (std::size_t t = 0; t < routing.tokens; ++t) {
    add_scaled(row(gradient.dprobability, t, shares.size()),
               scale / static_cast<double>(routing.tokens), shares);
  }
}

}  // namespace motley::moe::reference
