// Shows that AUC is exact with ties, against all pairs counted one by one, and that log loss holds
// at scores where the naive form overflows.
#include "wide/auc.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "wide/loss.h"

namespace motley::wide {
namespace {

std::optional<double> auc_of_all_pairs(const std::vector<float>& scores,
                                       const std::vector<float>& labels) {
  double won = 0;
  double pairs = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    for (std::size_t j = 0; j < scores.size(); ++j) {
      if (labels[i] <= 0 || labels[j] > 0) continue;
      pairs += 1;
      won += scores[i] > scores[j] ? 1.0 : scores[i] == scores[j] ? 0.5 : 0.0;
    }
  }
  if (pairs == 0) return std::nullopt;
  return won / pairs;
}

// 2 levels: almost everything is tied. 1000: almost nothing is.
TEST(Auc, EqualsTheCountOverAllPairs) {
  std::mt19937_64 random(7);
  for (const int levels : {1, 2, 5, 1000}) {
    for (const std::size_t n : {0, 1, 2, 3, 10, 57, 200}) {
      std::vector<float> scores(n);
      std::vector<float> labels(n);
      for (std::size_t i = 0; i < n; ++i) {
        scores[i] = static_cast<float>(random() % static_cast<unsigned>(levels)) - 2;
        labels[i] = static_cast<float>(random() % 3 == 0);
      }
      EXPECT_EQ(auc(scores, labels), auc_of_all_pairs(scores, labels)) << levels << " " << n;
    }
  }
}

TEST(Auc, IsAbsentWhereAllLabelsAreAlike) {
  EXPECT_EQ(auc(std::vector<float>{1, 2}, std::vector<float>{1, 1}), std::nullopt);
  EXPECT_EQ(auc(std::vector<float>{1, 2}, std::vector<float>{0, 0}), std::nullopt);
}

TEST(Evaluate, GivesKnownValues) {
  const std::vector<float> scores{0, 2, -1, 3};
  const std::vector<float> labels{1, 1, 1, 0};
  const Evaluation e = evaluate(scores, labels);
  EXPECT_EQ(e.rows, 4u);
  EXPECT_EQ(e.positives, 3u);
  EXPECT_NEAR(e.log_loss,
              (std::log(2.0) + std::log1p(std::exp(-2.0)) + std::log1p(std::exp(1.0)) +
               std::log1p(std::exp(3.0))) /
                  4,
              1e-12);
  EXPECT_EQ(e.accuracy, 0.5);
  EXPECT_EQ(e.auc, 0.0);
}

TEST(Evaluate, OfNothingIsZeroAndNotNan) {
  const Evaluation e = evaluate({}, {});
  EXPECT_EQ(e.log_loss, 0);
  EXPECT_EQ(e.accuracy, 0);
  EXPECT_EQ(e.auc, std::nullopt);
}

TEST(LogisticLoss, StaysFiniteForEveryFiniteScore) {
  for (const float s : {3e38f, 1000.f, 90.f, 40.f}) {
    EXPECT_EQ(LogisticLoss::loss(s, 0), static_cast<double>(s));
    EXPECT_LT(LogisticLoss::loss(s, 1), 1e-16);
    EXPECT_EQ(LogisticLoss::probability(s), 1.f);
    EXPECT_GE(LogisticLoss::probability(-s), 0.f);
    EXPECT_EQ(LogisticLoss::slope(-s, 1), -1.f);
  }
}

// Central differences in double, over the range where a float's slope has digits left.
TEST(LogisticLoss, HasTheSlopeOfItsLoss) {
  for (const float label : {0.f, 1.f}) {
    for (float s = -8; s <= 8; s += 0.37f) {
      const float h = 1.0f / 64;
      const double numeric =
          (LogisticLoss::loss(s + h, label) - LogisticLoss::loss(s - h, label)) / (2.0 * h);
      EXPECT_NEAR(LogisticLoss::slope(s, label), numeric, 2e-5) << s << " " << label;
    }
  }
}

}  // namespace
}  // namespace motley::wide
