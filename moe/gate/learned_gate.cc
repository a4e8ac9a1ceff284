#include "moe/gate/learned_gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "comm/error.h"
#include "moe/gate/maps.h"
#include "moe/gate/noise.h"
#include "moe/gate/route.h"
#include "moe/gate/score.h"
#include "moe/gate/select.h"
#include "moe/gate/token_loss.h"

namespace motley::moe::gate {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalid, "moe gate: " + what);
}

bool not_finite(double v) { return !std::isfinite(v); }

void select(const Selection& selection, Chosen chosen) {
  switch (selection.options.kind) {
    case GateKind::kPrototypes:
      return select_prototypes(selection, chosen);
    case GateKind::kBase:
      return select_base(selection, chosen);
    case GateKind::kDenseToSparse:
      return select_above(selection, chosen);
    case GateKind::kTopologyLimited:
      return select_near(selection, chosen);
    case GateKind::kTopK:
    case GateKind::kSam:
    case GateKind::kHash:  // is a gate of its own
      return select_top_k(selection, chosen);
  }
}

void require_near(const GateOptions& options, const GateInput& input) {
  if (options.kind != GateKind::kTopologyLimited || input.mode == GateMode::kEvaluate) return;
  const auto near = input.near.size() - static_cast<std::size_t>(std::ranges::count(input.near, 0));
  if (input.near.size() == static_cast<std::size_t>(options.experts) &&
      near >= static_cast<std::size_t>(options.top_k)) {
    return;
  }
  refuse(
      fmt::format("near is of {} experts, {} of them near. It needs all {}, and {} near ones "
                  "for tokens that may not leave.",
                  input.near.size(), near, options.experts, options.top_k));
}

}  // namespace

LearnedGate::LearnedGate(const GateOptions& options)
    : options_(options),
      layout_(gate_layout(options)),
      parameters_(layout_.back().first + layout_.back().count, 0.0f),
      bias_(options.bias_rate > 0 ? static_cast<std::size_t>(options.experts) : 0, 0.0f) {}

void LearnedGate::initialize(std::mt19937_64& random) {
  constexpr double kLogScale = 0.6931471805599453;  // a temperature of 1/2
  for (const ParameterInfo& part : layout_) {
    const std::span<float> values = part.of(std::span(parameters_));
    if (part.shape.size() < 2) {
      std::ranges::fill(values, part.name == "gate.temperature" ? float(kLogScale) : 0.0f);
      continue;
    }
    const double bound = 1 / std::sqrt(static_cast<double>(part.shape[1]));
    for (float& value : values) {
      const double unit = static_cast<double>(random() >> 11) * 0x1p-53;  // in [0, 1)
      value = static_cast<float>((2 * unit - 1) * bound);
    }
  }
}

std::size_t LearnedGate::tokens_of(const GateInput& input) const {
  const auto width = static_cast<std::size_t>(options_.width);
  if (input.x.size() % width != 0) {
    refuse(fmt::format("x holds {} numbers, not whole tokens of width {}. Pass tokens * {}.",
                       input.x.size(), width, width));
  }
  require_near(options_, input);
  return input.x.size() / width;
}

void LearnedGate::refuse_logits(const GateInput& input, std::size_t token) const {
  const auto width = static_cast<std::size_t>(options_.width);
  const auto x = row(input.x, token, width);
  if (const auto bad = std::ranges::find_if(x, not_finite); bad != x.end()) {
    refuse(fmt::format("x of token {}, column {} is {}. Pass finite numbers.", token,
                       bad - x.begin(), *bad));
  }
  for (const ParameterInfo& part : layout_) {
    const auto values = part.of(std::span<const float>(parameters_));
    const auto bad = std::ranges::find_if(values, not_finite);
    if (bad == values.end()) continue;
    refuse(fmt::format("parameter {}[{}] is {}. Pass finite numbers.", part.name,
                       bad - values.begin(), *bad));
  }
  refuse(fmt::format("the logits of token {} overflow float64. Scale x or the gate down.", token));
}

void LearnedGate::make_logits(const GateInput& input, std::size_t tokens, GateSaved& saved) const {
  const auto experts = static_cast<std::size_t>(options_.experts);
  const bool noise = has_noise(options_, input.mode);
  GateMaps maps(options_, parameters_);
  TokenRows rows(options_, input);
  saved.logits.resize(tokens * experts);
  saved.score.resize(tokens * experts);
  if (noise && maps.noise() != nullptr) saved.deviation.resize(tokens * experts);
  std::vector<double> raw(experts);
  for (std::size_t t = 0; t < tokens; ++t) {
    const In x = rows.of(t);
    const Out logits = row(Out(saved.logits), t, experts);
    maps.logits().forward(x, logits);
    if (std::ranges::any_of(logits, not_finite)) refuse_logits(input, t);
    if (saved.deviation.empty()) continue;
    maps.noise()->forward(x, raw);
    if (std::ranges::any_of(raw, not_finite)) refuse_logits(input, t);
    deviation_of(options_, raw, row(Out(saved.deviation), t, experts));
  }
  if (noise) saved.noisy = saved.logits;
  const double temperature = temperature_at(options_, input.step);
  for (std::size_t t = 0; t < tokens; ++t) {
    if (noise) {
      const In deviation = saved.deviation.empty() ? In() : row(In(saved.deviation), t, experts);
      add_noise(options_, input, t, deviation, row(Out(saved.noisy), t, experts));
    }
    score_of(options_, row(In(noise ? saved.noisy : saved.logits), t, experts), temperature,
             row(Out(saved.score), t, experts));
  }
}

void LearnedGate::choose(const GateInput& input, GateForward& result) const {
  const GateSaved& saved = result.saved;
  Routing& routing = result.routing;
  const Selection selection{.options = options_,
                            .input = input,
                            .tokens = routing.tokens,
                            .logits = saved.noisy.empty() ? saved.logits : saved.noisy,
                            .score = saved.score,
                            .bias = bias_};
  select(selection, routing.expert);
  for (std::size_t t = 0; t < routing.tokens; ++t) {
    const In score = row(In(saved.score), t, selection.experts());
    weigh(options_, score, row(std::span<const std::int32_t>(routing.expert), t, selection.k()),
          row(Out(result.saved.weight), t, selection.k()));
    routing.priority[t] = static_cast<float>(*std::ranges::max_element(score));
  }
}

GateForward LearnedGate::forward(const GateInput& input) const {
  const std::size_t tokens = tokens_of(input);
  GateForward result = unrouted(options_, input, tokens);
  make_logits(input, tokens, result.saved);
  choose(input, result);
  finish(options_, result);
  for (std::size_t t = 0; t < tokens; ++t) {
    add_token(TokenView(options_, input.mode, result, t), result.statistics);
  }
  return result;
}

void LearnedGate::end_step(const BalanceStatistics& statistics) {
  if (statistics.experts() != options_.experts) {
    refuse(fmt::format("a step's sums are over {} experts, not {}. Pass this gate's.",
                       statistics.experts(), options_.experts));
  }
  if (bias_.empty()) return;
  double total = 0;  // compared with count * experts, as a mean would be rounded
  for (const double count : statistics.choice_count()) total += count;
  double sum = 0;
  for (std::size_t e = 0; e < bias_.size(); ++e) {
    const double lack = total - statistics.choice_count()[e] * options_.experts;
    const double direction = lack > 0 ? 1 : lack < 0 ? -1 : 0;
    bias_[e] = static_cast<float>(bias_[e] + options_.bias_rate * direction);
    sum += bias_[e];
  }
  if (options_.bias_mean == BiasMean::kFree) return;
  for (float& bias : bias_) bias = static_cast<float>(bias - sum / options_.experts);
}

}  // namespace motley::moe::gate
