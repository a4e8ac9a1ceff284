#include "moe/gate/token_loss.h"

#include <algorithm>
#include <cmath>

#include "moe/gate/alignment.h"
#include "moe/gate/load.h"
#include "moe/gate/noise.h"
#include "moe/gate/score.h"

namespace motley::moe::gate {
namespace {

double log_sum(In logits) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const double l : logits) sum += std::exp(l - largest);
  return largest + std::log(sum);
}

AlignmentInput alignment_input(const TokenView& token) {
  return {.group_size = token.score.size() / static_cast<std::size_t>(token.options.groups),
          .score = token.score,
          .chosen = token.chosen};
}

LoadInput load_input(const TokenView& token) {
  return {static_cast<std::size_t>(token.options.top_k), token.logits, token.noisy,
          token.deviation};
}

}  // namespace

TokenView::TokenView(const GateOptions& gate_options, GateMode mode, const GateForward& gated,
                     std::size_t token)
    : options(gate_options), has_load(options.losses.load > 0 && has_noise(options, mode)) {
  const auto experts = static_cast<std::size_t>(options.experts);
  const auto k = static_cast<std::size_t>(options.top_k);
  const GateSaved& saved = gated.saved;
  chosen = row(std::span(gated.routing.expert), token, k);
  weight = row(In(saved.weight), token, k);
  logits = row(In(saved.logits), token, experts);
  noisy = saved.noisy.empty() ? logits : row(In(saved.noisy), token, experts);
  score = row(In(saved.score), token, experts);
  if (!has_load) return;
  if (saved.deviation.empty()) {
    deviation.assign(experts, constant_deviation(options));
  } else {
    const In mine = row(In(saved.deviation), token, experts);
    deviation.assign(mine.begin(), mine.end());
  }
}

void add_token(const TokenView& token, BalanceStatistics& statistics) {
  add_scaled(statistics.probability(), 1 / score_sum(token.options, token.score), token.score);
  if (token.options.losses.z > 0) {
    const double log = log_sum(token.logits);
    statistics.z() += log * log;
  }
  if (token.options.kind == GateKind::kSam) {
    statistics.alignment() += alignment(alignment_input(token));
  }
  if (token.has_load) add_load(load_input(token), statistics.load());
}

void add_token_gradient(const TokenView& token, const BalanceStatistics& gradient_of_sums,
                        double scale, const TokenGradient& gradient) {
  std::vector<double> scaled(token.score.size());
  const auto times_scale = [&](In values) -> In {
    std::ranges::transform(values, scaled.begin(), [scale](double v) { return scale * v; });
    return scaled;
  };
  probability_backward(token.options, token.score, times_scale(gradient_of_sums.probability()),
                       gradient.score);
  if (const double z = scale * gradient_of_sums.z(); z != 0) {
    const double log = log_sum(token.logits);
    for (std::size_t e = 0; e < token.logits.size(); ++e) {
      gradient.logits[e] += z * 2 * log * std::exp(token.logits[e] - log);
    }
  }
  if (token.options.kind == GateKind::kSam) {
    alignment_backward(alignment_input(token), scale * gradient_of_sums.alignment(),
                       gradient.score);
  }
  if (token.has_load) {
    load_backward(load_input(token), times_scale(gradient_of_sums.load()),
                  {gradient.logits, gradient.noisy, gradient.deviation});
  }
}

}  // namespace motley::moe::gate
