#include "moe/gate/score.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "moe/routing.h"

namespace motley::moe::gate {
namespace {

bool is_sigmoid(const GateOptions& options) {
  return options.score == GateScore::kSigmoid || options.kind == GateKind::kBase;
}

// Experts whose scores add up to 1.
std::size_t group_size(const GateOptions& options) {
  const auto experts = static_cast<std::size_t>(options.experts);
  if (options.kind != GateKind::kPrototypes) return experts;
  return experts / static_cast<std::size_t>(options.top_k);
}

void softmax(In logits, double temperature, Out p) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (std::size_t e = 0; e < p.size(); ++e) {
    p[e] = std::exp((logits[e] - largest) / temperature);
    sum += p[e];
  }
  for (double& value : p) value /= sum;
}

// What the weights of chosen scores are divided by. All of them may be too small for float64.
double chosen_sum(const GateOptions& options, In score, std::span<const std::int32_t> chosen) {
  if (options.normalize == GateNormalize::kNone) return 1;
  double sum = 0;
  for (const std::int32_t e : chosen) {
    if (e != kNoExpert) sum += score[static_cast<std::size_t>(e)];
  }
  return std::max(sum, std::numeric_limits<double>::min());
}

}  // namespace

void score_of(const GateOptions& options, In logits, double temperature, Out score) {
  if (is_sigmoid(options)) {
    std::ranges::transform(logits, score.begin(), [](double l) { return 1 / (1 + std::exp(-l)); });
    return;
  }
  const std::size_t size = group_size(options);
  for (std::size_t first = 0; first < logits.size(); first += size) {
    softmax(logits.subspan(first, size), temperature, score.subspan(first, size));
  }
}

void score_backward(const GateOptions& options, In score, double temperature, Out dscore) {
  if (is_sigmoid(options)) {
    for (std::size_t e = 0; e < score.size(); ++e) dscore[e] *= score[e] * (1 - score[e]);
    return;
  }
  const std::size_t size = group_size(options);
  for (std::size_t first = 0; first < score.size(); first += size) {
    const double mean = dot(score.subspan(first, size), dscore.subspan(first, size));
    for (std::size_t e = first; e < first + size; ++e) {
      dscore[e] = score[e] * (dscore[e] - mean) / temperature;
    }
  }
}

double temperature_at(const GateOptions& options, std::int64_t step) {
  if (options.kind != GateKind::kDenseToSparse) return 1;
  const double decayed =
      options.temperature * std::exp(-options.temperature_decay * static_cast<double>(step));
  return std::max(decayed, options.temperature_floor);
}

void weigh(const GateOptions& options, In score, std::span<const std::int32_t> chosen, Out weight) {
  const double factor = options.weight_scale / chosen_sum(options, score, chosen);
  for (std::size_t j = 0; j < chosen.size(); ++j) {
    weight[j] = chosen[j] == kNoExpert ? 0 : factor * score[static_cast<std::size_t>(chosen[j])];
  }
}

void weigh_backward(const GateOptions& options, In score, const Weighed& weighed, Out dscore) {
  // w_j = a s_j / sum of s:  d/ds_j = (a dw_j - sum_i w_i dw_i) / sum.
  const double sum = chosen_sum(options, score, weighed.chosen);
  const double shared =
      options.normalize == GateNormalize::kNone ? 0 : dot(weighed.weight, weighed.dweight);
  for (std::size_t j = 0; j < weighed.chosen.size(); ++j) {
    if (weighed.chosen[j] == kNoExpert) continue;
    dscore[static_cast<std::size_t>(weighed.chosen[j])] +=
        (options.weight_scale * weighed.dweight[j] - shared) / sum;
  }
}

double score_sum(const GateOptions& options, In score) {
  if (!is_sigmoid(options)) return static_cast<double>(score.size() / group_size(options));
  return std::max(std::accumulate(score.begin(), score.end(), 0.0),
                  std::numeric_limits<double>::min());
}

void probability_backward(const GateOptions& options, In score, In dq, Out dscore) {
  const double sum = score_sum(options, score);
  // The sum of softmaxes is constant.
  const double mean = is_sigmoid(options) ? dot(score, dq) / sum : 0;
  for (std::size_t e = 0; e < score.size(); ++e) dscore[e] += (dq[e] - mean) / sum;
}

}  // namespace motley::moe::gate
