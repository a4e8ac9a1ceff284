// Shows that a model whose features lie on several workers is the one that one worker learns with
// batches of all their rows, and what they send each other. Workers are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "comm/error.h"
#include "test/wide/sharded_workers.h"
#include "test/wide/skewed_rows.h"

namespace motley::wide {
namespace {

using test::Death, test::distance, test::dying, test::fm_options, test::kBatch, test::Learnt;
using test::Milestone;
using test::sharded, test::skewed_rows;

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

// Distinct slots from `hot` that steps of so many rows use in an epoch, all steps together.
std::uint64_t slots_stepped(const Dataset& data, const TrainOptions& given, std::uint64_t hot,
                            std::size_t rows) {
  const TrainOptions options = settled(given, data, false);
  Samples samples = Model::of(options.model, data).prepare(data);
  samples.reorder(shuffled(samples.rows(), options.seed));
  const auto order = order_of_epoch(samples.rows(), 0, options);
  std::uint64_t sum = 0;
  for (std::size_t first = 0; first < order.size(); first += rows) {
    std::set<std::uint32_t> slots;
    for (const std::uint64_t row : std::span(order).subspan(first, rows)) {
      for (std::uint64_t e = samples.row_begin[row]; e < samples.row_begin[row + 1]; ++e) {
        if (samples.slots[e] >= hot) slots.insert(samples.slots[e]);
      }
    }
    sum += slots.size();
  }
  return sum;
}

// Four workers, an FM with 8 factors, an FFM with 4: for a slot of a batch that lies elsewhere a
// key of 4 bytes, its weights and their gradients; for a hot slot of each step its gradient; for a
// slot that a step changes, and each copy of it, a key and the sum of its gradients.
TEST(ShardedTraffic, IsKeysWeightsGradientsHotSlotsAndCopies) {
  constexpr int kWorkers = 4;
  constexpr std::uint64_t kHot = 200, kSteps = 2;
  const Dataset data =
      skewed_rows({.rows = 4096, .fields = 13, .features = 30, .growth = 1.4, .skew = 2});
  for (const auto& [kind, copies] : {std::pair{ModelKind::kFm, 1},
                                     {ModelKind::kFm, 2},
                                     {ModelKind::kFm, 3},
                                     {ModelKind::kFfm, 1},
                                     {ModelKind::kFfm, 2}}) {
    TrainOptions options = fm_options();
    options.model.kind = kind;
    options.model.factors = kind == ModelKind::kFm ? 8 : 4;
    options.epochs = 1;
    options.batch_rows = data.rows() / kSteps / kWorkers;
    std::mutex mutex;
    ShardTraffic sum;
    std::uint64_t asked = 0;
    run_local(kWorkers, [&, copies = copies](Communicator& comm) {
      ShardedRun run(comm, data, std::nullopt, options, {.hot = kHot, .copies = copies});
      while (run.next_step()) continue;
      const ShardTraffic t = run.traffic();
      const std::lock_guard lock(mutex);
      sum.keys += t.keys;
      sum.early_weights += t.early_weights;
      sum.late_weights += t.late_weights;
      sum.gradients += t.gradients;
      sum.copies += t.copies;
      sum.hot += t.hot;
      asked += run.slots_asked();
    });
    const std::uint64_t floats = kind == ModelKind::kFm ? 8 + 1 : 13 * 4 + 1;
    const std::uint64_t copied =
        static_cast<std::uint64_t>(copies - 1) * slots_stepped(data, options, kHot, 4096 / kSteps);
    const std::uint64_t formula = asked * (kWorkers - 1) / kWorkers * (4 + 2 * 4 * floats) +
                                  kWorkers * kSteps * kHot * 4 * floats + copied * (4 + 4 * floats);
    const std::uint64_t weights = sum.early_weights + sum.late_weights;
    const std::uint64_t moved = sum.keys + weights + sum.gradients + sum.copies + sum.hot;
    const auto share = [](std::uint64_t part, std::uint64_t all) {
      return static_cast<double>(part) / static_cast<double>(all);
    };
    std::printf("%s, %d copies: %lu bytes moved, %.3f of the formula; %.2f of weights came early\n",
                name(kind), copies, moved, share(moved, formula),
                share(sum.early_weights, weights));
    EXPECT_NEAR(share(moved, formula), 1, 0.1) << name(kind) << ", " << copies << " copies";
    EXPECT_GT(share(sum.early_weights, weights), 0.1);
    // And for each copy of each shard how many, for each pair of workers how many in all.
    const auto counts = static_cast<std::uint64_t>(copies - 1) * kWorkers * 4 * kSteps +
                        (copies > 1 ? kWorkers * (kWorkers - 1) * 4 * kSteps : 0);
    EXPECT_EQ(sum.copies, copied * (8 + 4 * floats) + counts) << name(kind);
  }
}

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
      const auto ahead = std::make_shared<Milestone>();
      shards.on_ahead = [ahead](std::int64_t step) { ahead->reach(step); };
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
