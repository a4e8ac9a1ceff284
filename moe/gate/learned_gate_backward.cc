#include <fmt/format.h>

#include <algorithm>

#include "comm/error.h"
#include "moe/gate/learned_gate.h"
#include "moe/gate/maps.h"
#include "moe/gate/noise.h"
#include "moe/gate/score.h"
#include "moe/gate/token_loss.h"

namespace motley::moe::gate {
namespace {

void require_size(const char* what, std::size_t size, std::size_t wanted) {
  if (size == wanted) return;
  throw Error(ErrorCode::kInvalid, fmt::format("moe gate: {} holds {} numbers, not {}. Pass what "
                                               "belongs to one forward of this gate.",
                                               what, size, wanted));
}

// Gradients of one token's numbers; zero at first.
struct Scratch {
  explicit Scratch(std::size_t experts)
      : score(experts), logits(experts), noisy(experts), deviation(experts) {}
  void clear() {
    for (std::vector<double>* part : {&score, &logits, &noisy, &deviation}) {
      std::ranges::fill(*part, 0.0);
    }
  }
  std::vector<double> score, logits, noisy, deviation;
};

}  // namespace

void LearnedGate::require_matching(const GateInput& input, const GateForward& gated,
                                   const GateGradient& gradient, const GateGradientOut& out) const {
  const std::size_t tokens = tokens_of(input);
  const auto experts = static_cast<std::size_t>(options_.experts);
  const std::size_t choices = tokens * static_cast<std::size_t>(options_.top_k);
  const bool noise = has_noise(options_, input.mode);
  const bool learned = noise && options_.noise == GateNoise::kLearned;
  require_size("routing.expert", gated.routing.expert.size(), choices);
  require_size("saved.weight", gated.saved.weight.size(), choices);
  require_size("saved.logits", gated.saved.logits.size(), tokens * experts);
  require_size("saved.score", gated.saved.score.size(), tokens * experts);
  require_size("saved.noisy", gated.saved.noisy.size(), noise ? tokens * experts : 0);
  require_size("saved.deviation", gated.saved.deviation.size(), learned ? tokens * experts : 0);
  require_size("dweight", gradient.dweight.size(), choices);
  require_size("statistics", gradient.statistics.sums().size(),
               BalanceStatistics(options_.experts).sums().size());
  require_size("the gradient of the parameters", out.parameters.size(), parameters_.size());
  require_size("dx", out.dx.size(), input.x.size());
}

void LearnedGate::backward(const GateInput& input, const GateForward& gated,
                           const GateGradient& gradient, const GateGradientOut& out) const {
  require_matching(input, gated, gradient, out);
  const auto experts = static_cast<std::size_t>(options_.experts);
  const auto k = static_cast<std::size_t>(options_.top_k);
  const BalanceStatistics dsums = balance_gradient(gradient.statistics, options_.losses);
  const double temperature = temperature_at(options_, input.step);
  GateMaps maps(options_, parameters_);
  TokenRows rows(options_, input);
  Scratch d(experts);
  std::vector<double> dweight(k);
  std::vector<double> drow(static_cast<std::size_t>(options_.width));
  for (std::size_t t = 0; t < gated.routing.tokens; ++t) {
    d.clear();
    std::ranges::fill(drow, 0.0);
    const TokenView token(options_, input.mode, gated, t);
    for (std::size_t j = 0; j < k; ++j) {
      dweight[j] = 0;
      if (token.chosen[j] == kNoExpert) continue;
      dweight[j] = gradient.dweight[t * k + j] +
                   gradient.dloss * dsums.importance()[static_cast<std::size_t>(token.chosen[j])];
    }
    weigh_backward(options_, token.score, {token.chosen, token.weight, dweight}, d.score);
    add_token_gradient(token, dsums, gradient.dloss, {d.score, d.logits, d.noisy, d.deviation});
    score_backward(options_, token.score, temperature, d.score);
    add_scaled(d.noisy, 1, d.score);
    add_scaled(d.logits, 1, d.noisy);  // noisy = logits + deviation * lot

    const In x = rows.of(t);
    maps.logits().backward(x, d.logits, drow);
    if (!gated.saved.deviation.empty()) {
      const Lots lots(input, Purpose::kNoise, t);
      for (std::size_t e = 0; e < experts; ++e) d.deviation[e] += d.noisy[e] * lots.normal(e);
      deviation_backward(options_, row(In(gated.saved.deviation), t, experts), d.deviation);
      maps.noise()->backward(x, d.deviation, drow);
    }
    rows.add_gradient_to(out.dx, drow);
  }
  maps.add_gradient_to(out.parameters);
}

}  // namespace motley::moe::gate
