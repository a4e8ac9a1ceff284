// Shows that training repeats bit for bit, that shares cover every row once, that an early stop
// keeps the best epoch, that input which cannot be learnt from never becomes NaN, and that the
// quality promised is reached on real data.
#include "wide/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "comm/error.h"
#include "wide/reader.h"

namespace motley::wide {
namespace {

// n rows over 20 features; feature 0 decides the label nine times out of ten.
Dataset synthetic(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text;
  for (std::size_t r = 0; r < n; ++r) {
    const bool positive = random() % 2 == 0;
    text += positive ? "1" : "0";
    if (positive == (random() % 10 != 0)) text += " 0:1";
    for (int i = 1; i < 20; ++i) {
      if (random() % 4 == 0) text += " " + std::to_string(i) + ":0.5";
    }
    text += "\n";
  }
  return parse_text(text, "synthetic");
}

std::vector<float> trained(const TrainOptions& options) {
  TrainingRun run(synthetic(500, 1), std::nullopt, options);
  while (run.next_step()) {
  }
  return {run.model().weights().begin(), run.model().weights().end()};
}

TEST(TrainingRun, RepeatsBitForBitAndObeysTheSeed) {
  EXPECT_EQ(trained({.epochs = 3, .seed = 5}), trained({.epochs = 3, .seed = 5}));
  EXPECT_NE(trained({.epochs = 3, .seed = 5}), trained({.epochs = 3, .seed = 6}));
}

TEST(TrainingRun, DoesNotDependOnHowItIsCutIntoSteps) {
  const auto whole = trained({.epochs = 2});
  EXPECT_EQ(trained({.epochs = 2, .sync_rows = 7}), whole);
  EXPECT_EQ(trained({.epochs = 2, .sync_rows = 10'000}), whole);
}

// 500 rows: divisible by 1 and 4, not by 3 and 7. 600 workers: some have no row at all.
TEST(TrainingRun, SharesCoverEveryRowOnceInEqualNumbersOfSteps) {
  for (const int size : {1, 3, 4, 7, 600}) {
    std::uint64_t rows = 0;
    std::int64_t steps = -1;
    for (int rank = 0; rank < size; ++rank) {
      TrainingRun run(synthetic(500, 1), std::nullopt,
                      {.epochs = 2, .sync_rows = 50, .rank = rank, .size = size});
      while (run.next_step()) {
      }
      rows += run.rows_trained();
      EXPECT_EQ(run.rows_trained(), run.rows_planned());
      if (steps < 0) steps = run.step();
      EXPECT_EQ(run.step(), steps) << "rank " << rank << " of " << size;
      EXPECT_EQ(run.step(), 2 * run.steps_per_epoch());
    }
    EXPECT_EQ(rows, 1000u) << size << " workers";
  }
}

TEST(TrainingRun, LearnsWithEveryModelAndBatch) {
  for (const ModelKind kind : {ModelKind::kLogistic, ModelKind::kFm}) {
    for (const std::size_t batch : {1, 32}) {
      TrainingRun run(synthetic(2000, 1), synthetic(1000, 2),
                      {.model = {.kind = kind}, .epochs = 10, .batch_rows = batch});
      while (run.next_step()) {
      }
      const Evaluation e = *run.reports().back().validation;
      EXPECT_LT(e.log_loss, 0.40) << name(kind) << " " << batch;  // noise of one in ten: 0.325
      EXPECT_GT(*e.auc, 0.85);
    }
  }
}

// Labels that are noise: the more is learnt, the worse the validation.
TEST(TrainingRun, StopsEarlyAndKeepsTheBestEpoch) {
  Dataset train = synthetic(200, 3);
  std::mt19937_64 random(4);
  for (float& label : train.labels) label = static_cast<float>(random() % 2);
  const Dataset valid = synthetic(300, 5);
  TrainingRun run(train, valid, {.epochs = 100, .learning_rate = 1, .patience = 2});
  while (run.next_step()) {
  }
  const auto& reports = run.reports();
  ASSERT_LT(reports.size(), 100u);
  EXPECT_EQ(static_cast<int>(reports.size()), run.best_epoch() + 2);
  double best = INFINITY;
  for (const EpochReport& r : reports) best = std::min(best, r.validation->log_loss);
  const Model& model = run.model();
  const Evaluation e = evaluate(model.scores(model.prepare(valid)), valid.labels);
  EXPECT_EQ(e.log_loss, best);
}

TEST(TrainingRun, NeverTurnsOddInputIntoNan) {
  const struct {
    const char* what;
    const char* text;
  } inputs[] = {{"zero row", "1 1:0 2:0\n0 1:1\n"},
                {"no features at all", "1\n0\n1\n"},
                {"one row", "1 5:2\n"},
                {"huge values", "1 1:3e38 2:3e38\n0 1:-3e38\n"},
                {"tiny values", "1 1:1e-45\n0 2:1e-45\n"},
                {"one class", "1 1:1\n1 2:1\n"}};
  for (const auto& input : inputs) {
    const Dataset data = parse_text(input.text, "t");
    TrainingRun run(data, data, {.epochs = 5});
    while (run.next_step()) {
    }
    for (const float w : run.model().weights()) EXPECT_TRUE(std::isfinite(w)) << input.what;
    EXPECT_TRUE(std::isfinite(run.reports().back().validation->log_loss)) << input.what;
  }
}

TEST(TrainingRun, SaysSoWhenItDiverges) {
  TrainingRun run(parse_text("1 1:3e38\n0 1:3e38\n1 1:2e38\n", "t"), std::nullopt,
                  {.model = {.normalisation = Normalisation::kNone}});
  try {
    while (run.next_step()) {
    }
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalid);
    EXPECT_THAT(e.what(), testing::HasSubstr("diverged"));
  }
}

TEST(TrainingRun, RefusesOptionsOutOfRange) {
  const Dataset data = synthetic(10, 1);
  for (const TrainOptions& o :
       {TrainOptions{.epochs = -1}, TrainOptions{.learning_rate = 0},
        TrainOptions{.learning_rate = NAN}, TrainOptions{.l2 = -1}, TrainOptions{.batch_rows = 0},
        TrainOptions{.patience = 0}, TrainOptions{.rank = 2, .size = 2}, TrainOptions{.size = 0}}) {
    EXPECT_THROW(TrainingRun(data, std::nullopt, o), Error);
  }
  EXPECT_THROW(TrainingRun(Dataset{}, std::nullopt, {}), Error);
}

}  // namespace
}  // namespace motley::wide
