// wide/auc.h: how good scores are: loss, AUC and accuracy, or RMSE.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "wide/loss.h"

namespace motley::wide {

struct Evaluation {
  std::size_t rows = 0;
  std::size_t positives = 0;
  double loss = 0;            // mean loss of the kind asked for, with rows weighted
  double log_loss = 0;        // mean natural-log loss
  double rmse = 0;            // root of the mean squared difference of score and label
  double accuracy = 0;        // share of rows whose score has the label's sign; score 0 counts as 1
  std::optional<double> auc;  // none where all labels are alike
  // Log loss by that of the share of positives, told for every row; none where labels are alike.
  std::optional<double> normalised_entropy;
  std::optional<double> calibration;  // sum of probabilities by positives; none without positives
  std::optional<double> precision;    // positives of rows with scores of 0 and above; none if none
  std::optional<double> recall;       // scores of 0 and above of positives; none without positives
};

struct EvaluateOptions {
  Loss loss = Loss::kLogistic;
  std::span<const float> weights;  // of rows, for `loss` alone; empty: all 1
};

// scores [n], finite, before the sigmoid; labels [n], 0 or 1 (squared loss: any, and all
// but loss and RMSE tell nothing). Sums are in double, in row order, so the same scores give the
// same bits. n = 0 gives zeros. O(n log n).
Evaluation evaluate(std::span<const float> scores, std::span<const float> labels,
                    const EvaluateOptions& options = {});

// The share of pairs (positive row, other row) in which the positive has the higher score; equal
// scores count half. Exact up to 2^32 rows; none where one side is empty.
std::optional<double> auc(std::span<const float> scores, std::span<const float> labels);

}  // namespace motley::wide
