// wide/auc.h: how good scores are: log loss, AUC and accuracy.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace motley::wide {

struct Evaluation {
  std::size_t rows = 0;
  std::size_t positives = 0;
  double log_loss = 0;        // mean natural-log loss
  double accuracy = 0;        // share of rows whose score has the label's sign; score 0 counts as 1
  std::optional<double> auc;  // none where all labels are alike
};

// scores [n], finite, before the sigmoid; labels [n], 0 or 1. Sums are in double, in row order, so
// the same scores give the same bits. n = 0 gives zeros. O(n log n).
Evaluation evaluate(std::span<const float> scores, std::span<const float> labels);

// The share of pairs (positive row, other row) in which the positive has the higher score; equal
// scores count half. Exact up to 2^32 rows; none where one side is empty.
std::optional<double> auc(std::span<const float> scores, std::span<const float> labels);

}  // namespace motley::wide
