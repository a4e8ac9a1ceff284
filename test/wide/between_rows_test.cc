// What training does between rows, and what it chooses where it is left to choose: averages of
// states, the prior, defaults.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "comm/error.h"
#include "wide/defaults.h"
#include "wide/reader.h"
#include "wide/state_average.h"
#include "wide/trainer.h"

namespace motley::wide {
namespace {

Dataset some_rows() {
  std::string text;
  for (int r = 0; r < 60; ++r) {
    text += std::to_string(r % 2) + " " + std::to_string(r % 3) + ":1 " +
            std::to_string(3 + r % 7) + ":1 " + std::to_string(10 + r % 4) + ":1\n";
  }
  return parse_text(text, "t");
}

std::vector<float> copy(std::span<const float> x) { return {x.begin(), x.end()}; }

TEST(StateAverage, CountsAllAlikeUntilTheNewestsShareIsLarger) {
  StateAverage average(0.4f);
  EXPECT_TRUE(average.empty());
  const float expect[] = {3, 4.5f, 4.5f + 0.4f * (9 - 4.5f)};  // shares 1, 1/2, 0.4
  for (int i = 0; i < 3; ++i) {
    const float state[] = {static_cast<float>(3 * (i + 1)), 1};
    average.take(state);
    EXPECT_FLOAT_EQ(average.state()[0], expect[i]) << i;
    EXPECT_FLOAT_EQ(average.state()[1], 1) << i;
  }
}

TEST(StepPrior, ShrinksFactorsByTheRateOfTheirOwnStepAndNothingElse) {
  for (const Optimizer optimizer : {Optimizer::kSgd, Optimizer::kAdaGrad}) {
    Model model = Model::of({.optimizer = optimizer, .factors = 4}, some_rows());
    const Layout& layout = model.layout();
    for (std::size_t i = 0; i < layout.size(); ++i) {
      model.weights()[i] = 0.25f + static_cast<float>(i % 16);
    }
    const std::vector<float> before = copy(model.weights());
    step_prior(model.options(), layout, 0.5f, 3, model.weights());
    std::size_t factors = 0;
    for (std::size_t i = 0; i < layout.size(); ++i) {
      const bool factor = i >= layout.factors_begin() && layout.is_weight(i);
      factors += factor ? 1 : 0;
      const float root =
          factor && optimizer == Optimizer::kAdaGrad ? std::sqrt(before[i + layout.width]) : 1;
      EXPECT_FLOAT_EQ(model.weights()[i], factor ? before[i] / (1 + 0.5f * 3 / root) : before[i])
          << name(optimizer) << " " << i;
    }
    EXPECT_EQ(factors, 4 * layout.slots);
  }
}

// Averages change what is validated and kept, not what is trained on.
TEST(TrainingRun, EndsWithTheAverageOfItsStates) {
  TrainOptions options{.epochs = 3, .prior_factors = 0, .average = 0};
  TrainingRun raw(some_rows(), std::nullopt, options);
  std::vector<float> expect;
  int epoch = 0;
  while (raw.next_step()) {
    const float share = epoch++ == 0 ? 1.0f : 0.5f;
    expect.resize(raw.model().weights().size());
    for (std::size_t i = 0; i < expect.size(); ++i) {
      expect[i] += share * (raw.model().weights()[i] - expect[i]);
    }
  }
  options.average = 0.5f;
  TrainingRun averaged(some_rows(), std::nullopt, options);
  while (averaged.next_step()) {
  }
  EXPECT_EQ(copy(averaged.model().weights()), expect);
  ASSERT_EQ(averaged.reports().size(), 3u);
  for (std::size_t e = 0; e < 3; ++e) {
    EXPECT_EQ(averaged.reports()[e].train_loss, raw.reports()[e].train_loss);
  }
}

TEST(TrainingRun, AveragesSeveralTimesAnEpochWhereThatCostsLittle) {
  Dataset rows = some_rows();
  for (int times = 0; times < 6; ++times) append(rows, some_rows());
  TrainOptions options{.epochs = 1, .prior_factors = 0, .average = 0};
  TrainingRun raw(rows, std::nullopt, options);
  options.average = 1e-6f;  // so that all states count alike
  TrainingRun averaged(rows, std::nullopt, options);
  while (raw.next_step()) {
  }
  while (averaged.next_step()) {
  }
  EXPECT_NE(copy(averaged.model().weights()), copy(raw.model().weights()));
  // The same losses, added up part by part.
  EXPECT_NEAR(averaged.reports()[0].train_loss, raw.reports()[0].train_loss, 1e-12);
}

TEST(Defaults, SuitTheModelAndTheRows) {
  const Dataset rows = parse_text("1 1:2 2:2 3:2 4:2\n0 1:1 2:1\n", "t");
  EXPECT_DOUBLE_EQ(mean_features(rows), 3);
  EXPECT_DOUBLE_EQ(mean_features(parse_text("1 1:100 2:0.001\n0\n", "t")), 1);

  std::string wide = "1";
  for (int i = 0; i < 60; ++i) wide += " " + std::to_string(i) + ":1";
  const Dataset sixty = parse_text(wide + "\n", "t");
  const TrainOptions fm = settled({}, sixty, false);
  EXPECT_FLOAT_EQ(fm.learning_rate, 0.3f);
  EXPECT_FLOAT_EQ(fm.learning_rate_factors, 0.1f);  // 6 / 60
  EXPECT_FLOAT_EQ(settled({}, rows, false).learning_rate_factors, 0.6f);
  EXPECT_GT(fm.prior_factors, 0);
  EXPECT_EQ(fm.l2_factors, 0);

  const TrainOptions given = settled({.learning_rate = 0.05f, .l2_factors = 0.25f}, sixty, false);
  EXPECT_FLOAT_EQ(given.learning_rate_factors, 0.05f);
  EXPECT_EQ(given.prior_factors, 0);
  EXPECT_EQ(given.l2_factors, 0.25f);

  const TrainOptions ffm = settled({.model = {.kind = ModelKind::kFfm}}, sixty, false);
  EXPECT_EQ(ffm.learning_rate_factors, ffm.learning_rate);
  EXPECT_EQ(ffm.prior_factors, 0);
  EXPECT_EQ(ffm.average, 0);

  ModelOptions svm{.kind = ModelKind::kSvm, .optimizer = Optimizer::kSgd};
  EXPECT_FLOAT_EQ(settled({.model = svm}, rows, false).learning_rate, 0.02f);
  svm.loss = Loss::kHinge;
  EXPECT_FLOAT_EQ(settled({.model = svm}, rows, false).learning_rate, 0.2f);
}

TEST(TrainOptions, RefusePriorsAndAveragesThatTheRuleCannotKeep) {
  const ModelOptions ftrl{.optimizer = Optimizer::kFtrl};
  for (const TrainOptions& o :
       {TrainOptions{.model = ftrl, .prior_factors = 1},
        TrainOptions{.model = ftrl, .average = 0.5f}, TrainOptions{.average = 1.5f},
        TrainOptions{.learning_rate_factors = 0}, TrainOptions{.initial_accumulator = 0}}) {
    EXPECT_THROW(check(o), Error);
  }
}

}  // namespace
}  // namespace motley::wide
