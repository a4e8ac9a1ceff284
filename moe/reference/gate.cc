#include "moe/reference/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "comm/error.h"
#include "moe/reference/balance.h"

namespace motley::moe::reference {
namespace {

// Overwrites `p` with the softmax of `logits`. The largest is subtracted first, so nothing
// overflows.
void softmax(In logits, Out p) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (std::size_t e = 0; e < p.size(); ++e) sum += p[e] = std::exp(logits[e] - largest);
  for (double& value : p) value /= sum;
}

// Overwrites `chosen` with the experts of the highest logits, best first, equal ones by index.
// Logits, not probabilities: far below the best, distinct logits have equal (zero) probability.
void choose(In logits, std::span<std::int32_t> chosen) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](std::int32_t e) { return logits[static_cast<std::size_t>(e)]; };
  const auto better = [&](std::int32_t a, std::int32_t b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  };
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>(chosen.size());
  std::partial_sort(order.begin(), middle, order.end(), better);
  std::copy(order.begin(), middle, chosen.begin());
}

void weigh(GateWeight rule, In p, std::span<const std::int32_t> chosen, Out weight) {
  double sum = 0;  // at least 1/E, as the best expert is among the chosen
  for (std::size_t j = 0; j < chosen.size(); ++j) {
    sum += weight[j] = p[static_cast<std::size_t>(chosen[j])];
  }
  if (rule == GateWeight::kSoftmax) return;
  for (double& w : weight) w /= sum;
}

void require_finite_logits(In logits, std::size_t token) {
  for (std::size_t e = 0; e < logits.size(); ++e) {
    if (std::isfinite(logits[e])) continue;
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("moe layer: the gate's logit of token {} for expert {} is {}: x times the "
                    "gate overflows float64. Scale x or the gate down.",
                    token, e, logits[e]));
  }
}

}  // namespace

ReferenceRouting gate_forward(const LayerOptions& options, In gate, In x) {
  const auto d = static_cast<std::size_t>(options.width);
  const auto experts = static_cast<std::size_t>(options.experts);
  const auto k = static_cast<std::size_t>(options.top_k);
  const std::size_t tokens = x.size() / d;

  ReferenceRouting routing{.tokens = tokens,
                  .top_k = options.top_k,
                  .expert = std::vector<std::int32_t>(tokens * k),
                  .weight = std::vector<double>(tokens * k),
                  .probability = std::vector<double>(tokens * experts),
                  .count = std::vector<std::int64_t>(experts)};
  std::vector<double> logits(experts);
  for (std::size_t t = 0; t < tokens; ++t) {
    std::ranges::fill(logits, 0.0);
    add_product(logits, gate, row(x, t, d));
    require_finite_logits(logits, t);
    const Out p = row(Out(routing.probability), t, experts);
    const auto chosen = std::span(routing.expert).subspan(t * k, k);
    softmax(logits, p);
    choose(logits, chosen);
    weigh(options.weight, p, chosen, row(Out(routing.weight), t, k));
    for (const std::int32_t e : chosen) ++routing.count[static_cast<std::size_t>(e)];
  }
  routing.balance_loss = balance_loss(options, routing);
  return routing;
}

std::vector<double> gate_backward(const LayerOptions& options, const ReferenceRouting& routing,
                                  RoutingGradient gradient) {
  const auto experts = static_cast<std::size_t>(options.experts);
  const auto k = static_cast<std::size_t>(options.top_k);
  std::vector<double> dlogits(routing.probability.size(), 0.0);  // d/dp at first
  add_balance_gradient(options, routing, {gradient.balance_loss, gradient.weight, dlogits});

  for (std::size_t t = 0; t < routing.tokens; ++t) {
    const In p = row(In(routing.probability), t, experts);
    const In weight = row(In(routing.weight), t, k);
    const In dweight = row(In(gradient.weight), t, k);
    const Out dp = row(Out(dlogits), t, experts);

    // w_j = p_j / s, s = sum of the chosen p:  d/dp_j = (dw_j - sum_i w_i dw_i) / s.
    double shared = 0;
    double sum = 1;
    if (options.weight == GateWeight::kNormalized) {
      shared = dot(weight, dweight);
      sum = 0;
      for (std::size_t j = 0; j < k; ++j) {
        sum += p[static_cast<std::size_t>(routing.expert[t * k + j])];
      }
    }
    for (std::size_t j = 0; j < k; ++j) {
      dp[static_cast<std::size_t>(routing.expert[t * k + j])] += (dweight[j] - shared) / sum;
    }

    const double mean = dot(p, dp);  // of softmax: d/dlogit_e = p_e (dp_e - sum_i p_i dp_i)
    for (std::size_t e = 0; e < experts; ++e) dp[e] = p[e] * (dp[e] - mean);
  }
  return dlogits;
}

}  // namespace motley::moe::reference
