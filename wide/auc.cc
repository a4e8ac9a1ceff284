#include "wide/auc.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace motley::wide {

std::optional<double> auc(std::span<const float> scores, std::span<const float> labels) {
  assert(scores.size() == labels.size());
  std::vector<std::pair<float, bool>> rows(scores.size());
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = {scores[i], labels[i] > 0};
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::uint64_t twice_won = 0;  // pairs won count 2, ties 1
  std::uint64_t negatives = 0;  // with a lower score than the current run of equal scores
  std::uint64_t positives = 0;
  for (std::size_t i = 0; i < rows.size();) {
    std::uint64_t run[2] = {0, 0};
    const float score = rows[i].first;
    do {
      ++run[rows[i].second ? 1 : 0];
      ++i;
    } while (i < rows.size() && rows[i].first == score);
    twice_won += run[1] * (2 * negatives + run[0]);
    negatives += run[0];
    positives += run[1];
  }
  if (positives == 0 || negatives == 0) return std::nullopt;
  return static_cast<double>(twice_won) / 2 /
         (static_cast<double>(positives) * static_cast<double>(negatives));
}

Evaluation evaluate(std::span<const float> scores, std::span<const float> labels,
                    const EvaluateOptions& options) {
  assert(scores.size() == labels.size());
  Evaluation result{.rows = scores.size()};
  if (scores.empty()) return result;
  double loss = 0, log_loss = 0, squares = 0, weights = 0, probabilities = 0;
  std::size_t right = 0, chosen = 0, found = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const auto score = static_cast<double>(scores[i]);
    const double weight = options.weights.empty() ? 1 : static_cast<double>(options.weights[i]);
    weights += weight;
    loss += weight * loss_of(options.loss, score, labels[i]);
    log_loss += LogisticLoss::loss(score, labels[i]);
    squares += 2 * loss_of(Loss::kSquared, score, labels[i]);
    result.positives += labels[i] > 0 ? 1 : 0;
    right += (score >= 0) == (labels[i] > 0) ? 1 : 0;
    chosen += score >= 0 ? 1 : 0;
    found += score >= 0 && labels[i] > 0 ? 1 : 0;
    probabilities += LogisticLoss::probability(score);
  }
  const auto n = static_cast<double>(scores.size());
  result.loss = weights > 0 ? loss / weights : 0;
  result.log_loss = log_loss / n;
  result.rmse = std::sqrt(squares / n);
  result.accuracy = static_cast<double>(right) / n;
  result.auc = auc(scores, labels);
  const auto positives = static_cast<double>(result.positives);
  if (result.positives > 0) {
    result.calibration = probabilities / positives;
    result.recall = static_cast<double>(found) / positives;
  }
  if (chosen > 0) result.precision = static_cast<double>(found) / static_cast<double>(chosen);
  if (result.positives > 0 && positives < n) {
    const double share = positives / n;
    const double entropy = -share * std::log(share) - (1 - share) * std::log(1 - share);
    result.normalised_entropy = result.log_loss / entropy;
  }
  return result;
}

}  // namespace motley::wide
