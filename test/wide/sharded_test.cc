// Shows that a model whose features lie on several workers is the one that one worker learns with
// batches of all their rows; what they send each other; and that a worker's death costs nothing
// that was learnt. Workers are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <stdexcept>

#include "comm/error.h"
#include "comm/local.h"
#include "test/wide/skewed_rows.h"
#include "wide/defaults.h"
#include "wide/kernel/flow.h"
#include "wide/sharded_run.h"
#include "wide/train/settle.h"

namespace motley::wide {
namespace {

using test::skewed_rows;

constexpr std::size_t kBatch = 40;  // rows of a worker and step

double distance(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double sum = 0, norm = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    sum += (x - y) * (x - y);
    norm += y * y;
  }
  return std::sqrt(sum / norm);
}

// Of the first worker that lives.
struct Learnt {
  std::vector<float> state;
  std::vector<EpochReport> reports;
  std::vector<int> workers;
};

struct Death : std::runtime_error {
  Death() : std::runtime_error("this worker dies, as it is told to") {}
};

// All workers train to the end. One that throws dies; its Death is nobody's failure.
Learnt sharded(int workers, const RowParts& train, const std::optional<Dataset>& validation,
               const TrainOptions& options,
               const std::function<ShardOptions(Communicator&)>& shards) {
  Learnt learnt;
  std::mutex mutex;
  const auto body = [&](Communicator& comm) {
    ShardedRun run(comm, train, validation, options, shards(comm));
    while (run.next_step()) continue;
    std::vector<float> state = run.gather_state();
    if (state.empty()) return;
    const std::lock_guard lock(mutex);
    learnt = {std::move(state), run.reports(), run.workers()};
  };
  try {
    run_local(workers, body);
  } catch (const Death&) {
  }
  return learnt;
}

struct Case {
  ModelKind kind;
  Optimizer optimizer;
};

class Sharded : public testing::TestWithParam<Case> {
 protected:
  TrainOptions options() const {
    return {.model = {.kind = GetParam().kind, .optimizer = GetParam().optimizer, .factors = 4},
            .epochs = 2,
            .l1 = 1e-5f,
            .l1_factors = 1e-5f,
            .prior_factors = 0,
            .average = 0,
            .batch_rows = kBatch};
  }
};
INSTANTIATE_TEST_SUITE_P(
    Models, Sharded,
    testing::Values(Case{ModelKind::kLogistic, Optimizer::kAdaGrad},
                    Case{ModelKind::kSvm, Optimizer::kFtrl}, Case{ModelKind::kFm, Optimizer::kSgd},
                    Case{ModelKind::kFm, Optimizer::kAdaGrad},
                    Case{ModelKind::kFm, Optimizer::kFtrl}, Case{ModelKind::kFm, Optimizer::kAdam},
                    Case{ModelKind::kFfm, Optimizer::kAdaGrad},
                    Case{ModelKind::kFwfm, Optimizer::kAdaGrad}),
    [](const auto& i) { return std::string(name(i.param.kind)) + "_" + name(i.param.optimizer); });

// Rows of any length, values and weights; 530 are no multiple of any batch.
TEST_P(Sharded, EqualsTheReplicatedModel) {
  for (const bool complete : {true, false}) {
    const Dataset data = skewed_rows({.rows = 530, .complete = complete, .valued = !complete});
    const Dataset valid = skewed_rows({.rows = 90, .complete = complete, .seed = 7});
    for (const int workers : {1, 2, 4}) {
      TrainOptions whole = options();
      whole.batch_rows = kBatch * static_cast<unsigned>(workers);
      TrainingRun replicated(data, valid, whole);
      while (replicated.next_step()) continue;
      for (const std::uint64_t hot : {0, 30, 100'000}) {
        const Learnt learnt = sharded(workers, data, valid, options(),
                                      [&](Communicator&) { return ShardOptions{.hot = hot}; });
        EXPECT_LT(distance(learnt.state, replicated.model().weights()), 1e-5)
            << workers << " workers, " << hot << " hot";
        ASSERT_EQ(learnt.reports.size(), replicated.reports().size());
        for (std::size_t e = 0; e < learnt.reports.size(); ++e) {
          const EpochReport &ours = learnt.reports[e], &theirs = replicated.reports()[e];
          EXPECT_NEAR(ours.train_loss, theirs.train_loss, 1e-5 * theirs.train_loss);
          EXPECT_NEAR(ours.validation->loss, theirs.validation->loss,
                      1e-5 * theirs.validation->loss);
        }
      }
    }
  }
}

TrainOptions fm_options() {
  return {.model = {.kind = ModelKind::kFm, .factors = 8}, .epochs = 2, .batch_rows = kBatch};
}

// What one worker learns by batches of `before` rows in `steps` steps, then of `after` rows.
std::vector<float> in_batches(const Dataset& data, const TrainOptions& given, std::size_t steps,
                              std::size_t before, std::size_t after) {
  TrainOptions plain = given;
  plain.prior_factors = plain.average = 0;
  const TrainOptions options = settled(plain, data, false);
  ModelOptions of_model = options.model;
  of_model.initial_accumulator = options.initial_accumulator;
  Model model = Model::of(of_model, data);
  Samples samples = model.prepare(data);
  samples.reorder(shuffled(samples.rows(), options.seed));
  const auto flow = make_flow(model.options(), model.layout());
  std::size_t made = 0;
  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    const auto order = order_of_epoch(samples.rows(), epoch, options);
    for (std::size_t row = 0; row < order.size();) {
      const std::size_t n = std::min(made++ < steps ? before : after, order.size() - row);
      UpdateOptions update = update_options(options);
      update.batch_rows = std::max<std::size_t>(n, 2);
      flow->train(samples, std::span(order).subspan(row, n), update, model.weights());
      row += n;
    }
  }
  return {model.weights().begin(), model.weights().end()};
}

ShardOptions dying(Communicator& comm, int rank, std::int64_t step,
                   std::function<void(std::int64_t)> ShardOptions::*when, int copies = 2) {
  ShardOptions shards{.hot = 20, .copies = copies};
  if (comm.rank() == rank) {
    shards.*when = [step](std::int64_t now) {
      if (now == step) throw Death();
    };
  }
  return shards;
}

// 400 rows: a step of four workers has 160, the third one of an epoch 80. Worker 2 dies in the
// first, the second, the last of an epoch, and in the first of the next.
TEST(ShardedDeath, CostsNothingThatWasLearnt) {
  const Dataset data = skewed_rows({.rows = 400, .complete = false});
  for (const std::int64_t step : {0, 1, 2, 3}) {
    const Learnt learnt = sharded(4, data, std::nullopt, fm_options(), [&](Communicator& comm) {
      return dying(comm, 2, step, &ShardOptions::on_compute);
    });
    EXPECT_THAT(learnt.workers, testing::ElementsAre(0, 1, 3)) << "step " << step;
    const auto expected =
        in_batches(data, fm_options(), static_cast<std::size_t>(step), 4 * kBatch, 3 * kBatch);
    EXPECT_LT(distance(learnt.state, expected), 1e-5) << "step " << step;
  }
}

// Others have had all that it sent, or not: they agree on either.
TEST(ShardedDeath, BetweenSendingAndApplyingIsEitherSideOfTheStep) {
  const Dataset data = skewed_rows({.rows = 400, .complete = false});
  for (const int rank : {0, 3}) {
    const Learnt learnt = sharded(4, data, std::nullopt, fm_options(), [&](Communicator& comm) {
      return dying(comm, rank, 1, &ShardOptions::on_apply);
    });
    EXPECT_EQ(learnt.workers.size(), 3u);
    const auto without = in_batches(data, fm_options(), 1, 4 * kBatch, 3 * kBatch);
    const auto with = in_batches(data, fm_options(), 2, 4 * kBatch, 3 * kBatch);
    EXPECT_LT(std::min(distance(learnt.state, without), distance(learnt.state, with)), 1e-5);
  }
}

// Copies are made anew after each death, so that all but one may die, one after the other.
TEST(ShardedDeath, OfAllButOneIsSurvived) {
  const Dataset data = skewed_rows({.rows = 400, .complete = false});
  const Dataset valid = skewed_rows({.rows = 90, .complete = false, .seed = 7});
  const Learnt learnt = sharded(4, data, valid, fm_options(), [&](Communicator& comm) {
    return comm.rank() == 3 ? ShardOptions{.hot = 20}
                            : dying(comm, comm.rank(), 1 + comm.rank(), &ShardOptions::on_compute);
  });
  EXPECT_THAT(learnt.workers, testing::ElementsAre(3));
  ASSERT_EQ(learnt.reports.size(), 2u);
  EXPECT_LT(learnt.reports[1].train_loss, learnt.reports[0].train_loss);
}

TEST(ShardedDeath, EndsTrainingWhereNobodyHasACopy) {
  const Dataset data = skewed_rows({.rows = 400, .complete = false});
  std::atomic<int> told = 0;
  const auto body = [&](Communicator& comm) {
    ShardedRun run(comm, data, std::nullopt, fm_options(),
                   dying(comm, 1, 1, &ShardOptions::on_compute, 1));
    try {
      while (run.next_step()) continue;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
      EXPECT_THAT(error.what(), testing::HasSubstr("shard 1 of 3"));
      ++told;
    }
  };
  EXPECT_THROW(run_local(3, body), Death);
  EXPECT_EQ(told, 2);
}

// Four workers, an FM with 8 factors, an FFM with 4: for a slot of a batch that lies elsewhere a
// key of 4 bytes, its weights and their gradients; for a hot slot of each step its gradient.
TEST(ShardedTraffic, IsKeysWeightsGradientsAndHotSlots) {
  constexpr int kWorkers = 4;
  constexpr std::uint64_t kHot = 200;
  const Dataset data =
      skewed_rows({.rows = 4096, .fields = 13, .features = 30, .growth = 1.4, .skew = 2});
  for (const ModelKind kind : {ModelKind::kFm, ModelKind::kFfm}) {
    TrainOptions options = fm_options();
    options.model.kind = kind;
    options.model.factors = kind == ModelKind::kFm ? 8 : 4;
    options.epochs = 1;
    options.batch_rows = 512;
    std::mutex mutex;
    double moved = 0, formula = 0, early = 0, weights = 0;
    run_local(kWorkers, [&](Communicator& comm) {
      ShardedRun run(comm, data, std::nullopt, options, {.hot = kHot, .copies = 1});
      while (run.next_step()) continue;
      const ShardTraffic t = run.traffic();
      const double floats = kind == ModelKind::kFm ? 8 + 1 : 13 * 4 + 1;
      const std::lock_guard lock(mutex);
      moved += static_cast<double>(t.keys + t.early_weights + t.late_weights + t.gradients + t.hot);
      formula += static_cast<double>(run.slots_asked()) * (kWorkers - 1) / kWorkers *
                     (4 + 2 * 4 * floats) +
                 static_cast<double>(run.step()) * kHot * 4 * floats;
      early += static_cast<double>(t.early_weights);
      weights += static_cast<double>(t.early_weights + t.late_weights);
    });
    std::printf("%s: %.0f bytes moved, %.3f of the formula; %.2f of the weights came early\n",
                name(kind), moved, moved / formula, early / weights);
    EXPECT_NEAR(moved / formula, 1, 0.1) << name(kind);
    EXPECT_GT(early, 0.1 * weights);
  }
}

class Gate {
 public:
  void open(std::int64_t step) {
    const std::lock_guard lock(mutex_);
    open_ = step;
    opened_.notify_all();
  }
  bool await(std::int64_t step) {
    std::unique_lock lock(mutex_);
    return opened_.wait_for(lock, std::chrono::seconds(60), [&] { return open_ >= step; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  std::int64_t open_ = -1;
};

// No worker computes before the weights of its next step are there; by FTRL, too.
TEST(ShardedPulls, ComeWhileTheStepBeforeComputes) {
  const Dataset data = skewed_rows({.rows = 400, .complete = false});
  double exact[2] = {};
  for (const int i : {0, 1, 2, 3}) {
    const Pulls pulls = i < 2 ? Pulls::kExact : Pulls::kOneStepOld;
    TrainOptions options = fm_options();
    options.model.optimizer = i % 2 == 0 ? Optimizer::kAdaGrad : Optimizer::kFtrl;
    std::atomic<int> waits = 0;
    const Learnt learnt = sharded(2, data, std::nullopt, options, [&](Communicator&) {
      ShardOptions shards{.hot = 20, .pulls = pulls};
      const auto ahead = std::make_shared<Gate>();
      shards.on_ahead = [ahead](std::int64_t step) { ahead->open(step); };
      shards.on_compute = [ahead, &waits](std::int64_t step) {
        if (step % 5 == 4) return;  // the last of an epoch
        EXPECT_TRUE(ahead->await(step)) << "step " << step;
        ++waits;
      };
      return shards;
    });
    EXPECT_EQ(waits, 2 * 2 * 4);
    EXPECT_LT(learnt.reports.at(1).train_loss, learnt.reports[0].train_loss);
    if (i < 2) exact[i] = learnt.reports[1].train_loss;
    EXPECT_LT(learnt.reports[1].train_loss, 1.02 * exact[i % 2]);
  }
}

class ShardedFile : public testing::Test {
 protected:
  void write(const Dataset& data, const std::string& behind = "") {
    std::ofstream out(path_);
    for (std::size_t r = 0; r < data.rows(); ++r) {
      out << data.labels[r];
      for (std::uint64_t e = data.row_begin[r]; e < data.row_begin[r + 1]; ++e)
        out << ' ' << data.fields[e] << ':' << data.ids[e] << ':' << data.value(e);
      out << "\n";
    }
    out << behind;
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::string path_ = testing::TempDir() + "sharded_test_" + std::to_string(getpid()) + ".ffm";
};

// Each worker its part; where one dies, the others read its rows, some of which do not count.
TEST_F(ShardedFile, IsReadByAllTogether) {
  const Dataset data = skewed_rows({.rows = 400, .complete = false, .valued = true});
  write(data);
  TrainOptions options = fm_options();
  options.model.kind = ModelKind::kFfm;
  options.negative_rate = 0.7f;
  const auto with = [&](const RowParts& rows, int dying_rank) {
    return sharded(4, rows, std::nullopt, options, [&](Communicator& comm) {
      return dying(comm, dying_rank, 1, &ShardOptions::on_compute);
    });
  };
  TrainOptions whole = options;
  whole.batch_rows *= 4;
  TrainingRun replicated(data, std::nullopt, whole);
  while (replicated.next_step()) continue;
  const RowParts rows({path_}, {});
  EXPECT_LT(distance(with(rows, -1).state, replicated.model().weights()), 1e-5);
  EXPECT_LT(distance(with(rows, 2).state, with(data, 2).state), 1e-5);
}

// The worker that finds the line names it, and the others say who did; two that contradict each
// other read the whole to find it.
TEST_F(ShardedFile, IsRefusedByAllWhereAPartIsBad) {
  const Dataset data = skewed_rows({.rows = 4000});
  for (const std::string behind : {"0 oops\n", "-1 0:1:1\n"}) {
    write(data, behind);
    std::atomic<int> named = 0, told = 0;
    run_local(3, [&](Communicator& comm) {
      try {
        ShardedRun(comm, RowParts({path_}, {}), std::nullopt, fm_options());
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalid);
        const std::string_view what = error.what();
        named += what.find(path_ + ":4001") != what.npos ? 1 : 0;
        told += what.find("worker 2 could not") != what.npos ? 1 : 0;
      }
    });
    EXPECT_EQ(told, behind[0] == '0' ? 2 : 0);
    EXPECT_EQ(named, 3 - told);
  }
}

TEST(ShardedModel, IsSavedAsAnyOther) {
  const Dataset data = skewed_rows({.rows = 400, .complete = false});
  const std::string path = testing::TempDir() + "sharded_" + std::to_string(getpid()) + ".model";
  std::vector<float> state;
  run_local(3, [&](Communicator& comm) {
    ShardedRun run(comm, data, std::nullopt, fm_options(), {.hot = 20});
    while (run.next_step()) continue;
    std::vector<float> whole = run.gather_state();
    run.save(path);
    if (comm.rank() == 0) state = std::move(whole);
  });
  const Model model = Model::load(path);
  std::filesystem::remove(path);
  EXPECT_THAT(std::vector<float>(model.weights().begin(), model.weights().end()),
              testing::ElementsAreArray(state));
  const Samples samples = model.prepare(data);
  EXPECT_GT(evaluate(model.scores(samples), samples.labels).auc.value(), 0.7);
}

TEST(ShardedOptions, OutOfRangeAreRefused) {
  const Dataset data = skewed_rows({});
  run_local(1, [&](Communicator& comm) {
    TrainOptions options = fm_options();
    EXPECT_THROW(ShardedRun(comm, data, std::nullopt, options, {.copies = 0}), Error);
    options.batch_rows = 1;
    EXPECT_THROW(ShardedRun(comm, data, std::nullopt, options), Error);
  });
}

}  // namespace
}  // namespace motley::wide
