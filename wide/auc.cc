#include "wide/auc.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <utility>
#include <vector>

#include "wide/logistic.h"

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

Evaluation evaluate(std::span<const float> scores, std::span<const float> labels) {
  assert(scores.size() == labels.size());
  Evaluation result{.rows = scores.size()};
  if (scores.empty()) return result;
  double loss = 0;
  std::size_t right = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    loss += LogisticLoss::loss(scores[i], labels[i]);
    result.positives += labels[i] > 0 ? 1 : 0;
    right += (scores[i] >= 0) == (labels[i] > 0) ? 1 : 0;
  }
  const auto n = static_cast<double>(scores.size());
  result.log_loss = loss / n;
  result.accuracy = static_cast<double>(right) / n;
  result.auc = auc(scores, labels);
  return result;
}

}  // namespace motley::wide
