// wide/report.h: one page of HTML about a model, with nothing to load from elsewhere: figures, ROC,
// calibration, loss by epoch, slices, and the features that weigh most.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "wide/auc.h"
#include "wide/model.h"
#include "wide/slices.h"
#include "wide/trainer.h"

namespace motley::wide {

struct HeavyFeature {
  std::uint32_t id = 0;
  float weight = 0;   // linear
  float factors = 0;  // root of the sum of squares; 0 of models without
};

// The `most` features with the largest linear weights by size, the heaviest first.
std::vector<HeavyFeature> heaviest(const Model& model, std::size_t most);

struct ReportInput {
  std::string title;              // the model and the data
  std::span<const float> scores;  // of the rows evaluated
  std::span<const float> labels;
  Evaluation result;
  std::vector<EpochReport> epochs;  // of training; may be empty
  std::vector<Slice> slices;        // may be empty
  std::string sliced_by;
};

// `names` has names of features (Dataset::names), where there are.
std::string report_html(const Model& model, const ReportInput& input, const Dataset& names);

// For plots: at most `most` points from (0, 0) to (1, 1): share of negatives and of positives with
// scores above each of the scores there are.
struct Point {
  double x = 0;
  double y = 0;
};
std::vector<Point> roc(std::span<const float> scores, std::span<const float> labels,
                       std::size_t most);
// At most `bins` groups of rows of about one size by rising probability: its mean, and the share of
// positives.
std::vector<Point> calibration(std::span<const float> scores, std::span<const float> labels,
                               std::size_t bins);

}  // namespace motley::wide
