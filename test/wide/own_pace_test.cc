// Sharded training in which nobody waits for a slow worker: where all go at one pace it is what one
// worker learns; others go on while one computes; gradients that are too old count nothing; all
// hold one model in the end. Workers are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <mutex>

#include "comm/error.h"
#include "comm/local.h"
#include "test/wide/sharded_workers.h"
#include "test/wide/skewed_rows.h"
#include "wide/defaults.h"
#include "wide/kernel/flow.h"
#include "wide/sharded_run.h"
#include "wide/train/settle.h"

namespace motley::wide {
namespace {

using test::distance, test::kBatch, test::sharded, test::skewed_rows;
using test::Milestone;

TrainOptions options_for(ModelKind kind, Optimizer optimizer = Optimizer::kAdaGrad) {
  return {.model = {.kind = kind, .optimizer = optimizer, .factors = 4},
          .epochs = 2,
          .prior_factors = 0,
          .average = 0,
          .batch_rows = kBatch};
}

ShardOptions partial(int group_size, std::uint64_t hot = 20, int copies = 2) {
  return {.hot = hot, .copies = copies, .partial = PartialOptions{.group_size = group_size}};
}

// What all learn together.
std::vector<float> learnt(int workers, const Dataset& data, const TrainOptions& options,
                          const ShardOptions& shards) {
  return sharded(workers, data, std::nullopt, options, [&](Communicator&) { return shards; }).state;
}

TEST(OwnPace, OfOneWorkerIsThatOfBatches) {
  const Dataset data = skewed_rows({.rows = 530, .complete = false});
  for (const Optimizer optimizer :
       {Optimizer::kSgd, Optimizer::kAdaGrad, Optimizer::kFtrl, Optimizer::kAdam}) {
    const TrainOptions options = options_for(ModelKind::kFm, optimizer);
    TrainingRun whole(data, std::nullopt, options);
    while (whole.next_step()) continue;
    for (const std::uint64_t hot : {0, 30, 100'000}) {
      const auto state = learnt(1, data, options, partial(2, hot));
      EXPECT_LT(distance(state, whole.model().weights()), 1e-5) << name(optimizer) << ", " << hot;
    }
  }
}

// All slots are hot, and all workers in each group, as the first to come waits for the others, for
// two leases: then a step is one of all their batches.
TEST(OwnPace, WithAllInTheGroupIsThatOfOneWorker) {
  constexpr int kWorkers = 3;
  constexpr std::size_t kRows = 12 * kBatch;  // 4 steps of each worker
  const Dataset data = skewed_rows({.rows = kRows, .complete = false});
  TrainOptions options = options_for(ModelKind::kFm);
  options.shuffles = false;
  options.epochs = 1;
  std::vector<float> state;
  const auto body = [&](Communicator& comm) {
    ShardedRun run(comm, data, std::nullopt, options, partial(kWorkers, 100'000));
    while (run.next_step()) continue;
    std::vector<float> whole = run.gather_state();
    if (comm.rank() == 0) state = std::move(whole);
  };
  run_local(kWorkers, body, {.lease = seconds(60)});

  ModelOptions of_model = settled(options, data, false).model;
  of_model.seed = options.seed;
  of_model.initial_accumulator = settled(options, data, false).initial_accumulator;
  Model model = Model::of(of_model, data);
  const Samples samples = model.prepare(data);
  std::vector<std::uint64_t> rows;
  for (std::size_t step = 0; step < kRows / kWorkers / kBatch; ++step) {
    for (std::size_t worker = 0; worker < kWorkers; ++worker) {
      for (std::size_t i = 0; i < kBatch; ++i)
        rows.push_back(worker * kRows / kWorkers + step * kBatch + i);
    }
  }
  UpdateOptions update = update_options(settled(options, data, false));
  update.batch_rows = kWorkers * kBatch;
  const auto flow = make_flow(model.options(), model.layout());
  flow->train(samples, rows, update, model.weights());
  EXPECT_LT(distance(state, model.weights()), 1e-5);
}

// One of three has the only row, and nobody to average with. It steps by three times its gradient,
// as all would; then comes the mean of all models. The others make no step, and hold nobody up.
TEST(OwnPace, WorkerOnItsOwnStepsForAll) {
  const Dataset data = skewed_rows({.rows = 1});
  for (const Optimizer optimizer : {Optimizer::kSgd, Optimizer::kAdaGrad}) {
    TrainOptions options = options_for(ModelKind::kLogistic, optimizer);
    options.epochs = 5;
    options.l2 = 0;
    options.learning_rate = 0.1f;
    const auto state = learnt(3, data, options, partial(2, 100'000));
    Dataset three_times = data;
    three_times.weights = {3};
    TrainingRun whole(three_times, std::nullopt, options);
    const std::span<float> stepped = whole.model().weights();
    std::vector<float> before(stepped.begin(), stepped.end());
    while (whole.next_step()) {
      for (std::size_t i = 0; i < before.size(); ++i)
        before[i] = stepped[i] = (stepped[i] + 2 * before[i]) / 3;
    }
    EXPECT_LT(distance(state, before), 1e-5) << name(optimizer);
  }
}

// Where the second epoch begins, after 4 steps, one worker computes for longer than workers that
// may or may not come are waited for: the other averages with it all the same, and so do they ever
// after.
TEST(OwnPace, NobodyAveragesAloneWhereAnEpochBegins) {
  const Dataset data = skewed_rows({.rows = 8 * kBatch, .complete = false});
  Milestone next;
  std::mutex mutex;
  run_local(2, [&](Communicator& comm) {
    TrainOptions options = options_for(ModelKind::kLogistic, Optimizer::kSgd);
    options.shuffles = false;
    ShardOptions shards = partial(2);
    shards.on_compute = [&](std::int64_t step) {
      if (comm.rank() == 0) return next.reach(step);
      if (step != 4) return;
      EXPECT_FALSE(next.await(5, seconds(0.3))) << "worker 0 steps alone";
    };
    ShardedRun run(comm, data, std::nullopt, options, shards);
    EXPECT_TRUE(run.next_step());
    const std::uint64_t of_one = run.traffic().hot;
    while (run.next_step()) continue;
    const std::lock_guard lock(mutex);
    EXPECT_GT(of_one, 0u);
    EXPECT_EQ(run.step(), 8);
    EXPECT_EQ(run.traffic().hot, 8 * of_one) << "of worker " << comm.rank();
  });
}

class Slow : public testing::Test {
 protected:
  static constexpr int kWorkers = 3;
  void TearDown() override { std::filesystem::remove(path_); }

  // Three workers make an epoch of 48 batches, in pairs. The second computes its first batch, of
  // which it has the weights before the others have learnt anything, while those make 15 steps
  // each; the keepers give out its features' weights meanwhile.
  void train(std::int64_t staleness) {
    Milestone began, others;
    run_local(kWorkers, [&](Communicator& comm) {
      TrainOptions options = options_for(ModelKind::kLogistic);
      options.epochs = 1;
      options.shuffles = false;
      ShardOptions shards = partial(2, 0);
      shards.staleness = staleness;
      shards.on_compute = [&](std::int64_t step) {
        if (comm.rank() == 0 && step == 15) others.reach(step);
        if (step != 0) return;
        if (comm.rank() == 1) {
          began.reach(0);
          waited_ = others.await(15);
        } else {
          EXPECT_TRUE(began.await(0));
        }
      };
      ShardedRun run(comm, data_, std::nullopt, options, shards);
      while (run.next_step()) continue;
      left_out_ += run.left_out();
      rows_ += run.rows_trained();
      run.save(path_);
    });
  }
  // Of the slow worker's first batch: features that nobody else's rows have.
  std::vector<float> scores() {
    std::vector<std::uint64_t> rows(kBatch);
    std::iota(rows.begin(), rows.end(), data_.rows() / kWorkers);
    const Model model = Model::load(path_);
    return model.scores(model.prepare(rows_of(data_, rows)));
  }

  // 48 batches are 12 parts of 4, of which each worker holds 4.
  const Dataset data_ = skewed_rows({.rows = 48 * kBatch, .disjoint = true});
  const std::string path_ = testing::TempDir() + "own_pace_" + std::to_string(getpid());
  std::atomic<bool> waited_ = false;
  std::atomic<std::uint64_t> left_out_ = 0, rows_ = 0;
};

TEST_F(Slow, WorkersHoldNobodyUp) {
  train(1000);
  EXPECT_TRUE(waited_) << "the others waited for the slow worker";
  EXPECT_EQ(rows_, data_.rows());
  EXPECT_EQ(left_out_, 0u);
  const std::vector<float> of_rows = scores();
  EXPECT_NE(std::ranges::min(of_rows), std::ranges::max(of_rows));
}

// The others have made 30 steps since it asked, of which 2 * 5 were allowed.
TEST_F(Slow, GradientsCountNothingWhenTooOld) {
  train(5);
  EXPECT_TRUE(waited_);
  EXPECT_GE(left_out_, static_cast<unsigned>(kWorkers)) << "by each of the keepers";
  const std::vector<float> of_rows = scores();
  EXPECT_EQ(std::ranges::min(of_rows), std::ranges::max(of_rows));
}

// Hot features are one worker's nowhere, gradients are on their way, the best epoch is put back.
TEST(OwnPaceModel, IsTheOneThatWasValidated) {
  const Dataset data = skewed_rows({.rows = 600, .complete = false});
  const Dataset valid = skewed_rows({.rows = 90, .complete = false, .seed = 7});
  const std::string path = testing::TempDir() + "own_pace_" + std::to_string(getpid());
  for (const Pulls pulls : {Pulls::kExact, Pulls::kOneStepOld}) {
    std::mutex mutex;
    std::vector<std::vector<EpochReport>> reports;
    int best = 0;
    std::vector<float> early;
    run_local(3, [&](Communicator& comm) {
      TrainOptions options = options_for(ModelKind::kFm);
      options.epochs = 5;
      ShardOptions shards = partial(2);
      shards.pulls = pulls;
      ShardedRun run(comm, data, valid, options, shards);
      EXPECT_TRUE(run.next_step());
      const std::vector<float> state = run.gather_state();
      while (run.next_step()) continue;
      run.save(path);
      const std::lock_guard lock(mutex);
      reports.push_back(run.reports());
      best = run.best_epoch();
      if (comm.rank() == 0) early = state;
    });
    ASSERT_EQ(reports[0].size(), 5u);
    for (std::size_t e = 0; e < 5; ++e) {
      for (const auto& each : reports) {
        EXPECT_EQ(each[e].train_loss, reports[0][e].train_loss);
        EXPECT_EQ(each[e].validation->loss, reports[0][e].validation->loss);
      }
    }
    EXPECT_LT(reports[0][4].train_loss, 0.9 * reports[0][0].train_loss);
    const Model model = Model::load(path);
    EXPECT_GT(distance(early, model.weights()), 1e-3);
    const Samples samples = model.prepare(valid);
    const double loss = evaluate(model.scores(samples), samples.labels).loss;
    EXPECT_NEAR(loss, reports[0][static_cast<std::size_t>(best) - 1].validation->loss, 1e-6);
  }
  std::filesystem::remove(path);
}

// Keys with entries, weights and gradients of what lies elsewhere; state and gradients of hot
// slots. Each worker asks once more in an epoch than it gets rows: of 16 times. Copies of two.
TEST(OwnPaceTraffic, IsKeysWeightsGradientsAndHotState) {
  constexpr int kWorkers = 4;
  constexpr std::uint64_t kHot = 200;
  const Dataset data =
      skewed_rows({.rows = 4096, .fields = 13, .features = 30, .growth = 1.4, .skew = 2});
  TrainOptions options = options_for(ModelKind::kFm);
  options.model.factors = 8;
  options.epochs = 1;
  options.batch_rows = 64;
  std::mutex mutex;
  double cold = 0, hot = 0, copies = 0, asked = 0, steps = 0;
  run_local(kWorkers, [&](Communicator& comm) {
    ShardedRun run(comm, data, std::nullopt, options, partial(2, kHot));
    while (run.next_step()) continue;
    const ShardTraffic t = run.traffic();
    const std::lock_guard lock(mutex);
    cold += static_cast<double>(t.keys + t.late_weights + t.gradients);
    hot += static_cast<double>(t.hot);
    copies += static_cast<double>(t.copies);
    asked += static_cast<double>(run.slots_asked());
    steps += static_cast<double>(run.step());
  });
  const double formula = asked * (kWorkers - 1) / kWorkers * (8 + 2 * 4 * 9);
  std::printf(
      "%.0f bytes of cold slots, %.3f of the formula; %.0f of hot ones a step; %.0f for copies\n",
      cold, cold / formula, hot / steps, copies);
  EXPECT_NEAR(cold / formula, 1, 0.1);
  EXPECT_LE(hot / steps, 1.1 * kHot * 4 * (2 * 9 + 9 + 1));
  // Each slot that was asked for changes once: its number, and by AdaGrad two planes.
  EXPECT_GT(copies, 0);
  EXPECT_LE(copies, 1.1 * asked * (4 + 4 * 2 * 9));
}

TEST(OwnPaceOptions, OutOfRangeAreRefused) {
  const Dataset data = skewed_rows({});
  run_local(1, [&](Communicator& comm) {
    ShardOptions shards = partial(2);
    for (const std::int64_t staleness : {std::int64_t{0}, std::int64_t{1} << 62}) {
      shards.staleness = staleness;
      EXPECT_THROW(ShardedRun(comm, data, std::nullopt, options_for(ModelKind::kFm), shards),
                   Error);
    }
  });
}

}  // namespace
}  // namespace motley::wide
