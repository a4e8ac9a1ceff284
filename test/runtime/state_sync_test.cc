// Workers average momentum, moments, counters and running statistics together with parameters, by
// all methods that mix; the numbers are those of a reference. Partial scenarios 37, 38.
#include "runtime/state_sync.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "comm/local.h"
#include "runtime/optimizer.h"
#include "runtime/trainer.h"
#include "test/support/errors.h"

namespace motley::runtime {
namespace {

using testing::Each;
using testing::ElementsAre;

// Values of worker r follow N(2r, 1 + r).
struct Worker {
  explicit Worker(int rank)
      : weights(3, static_cast<float>(rank)),
        mean(2, 2 * static_cast<float>(rank)),
        variance(2, 1 + static_cast<float>(rank)),
        steps((std::int64_t{1} << 40) + 70'000 * rank),
        negative(-rank - 1),
        tiny{std::numeric_limits<double>::min(), -1e300 * rank},
        bytes{static_cast<std::int8_t>(-3 * rank), 7, static_cast<std::int8_t>(rank)},
        seen(rank),
        own(rank) {
    state.add({"weights", {3}, weights});
    state.add({"variance", {2}, variance, StatePolicy::kAverage, "mean"});
    state.add({"mean", {2}, mean});
    state.add("steps", steps, StatePolicy::kMaximum);
    state.add("negative", negative, StatePolicy::kMaximum);
    state.add({"tiny", {2}, tiny, StatePolicy::kMaximum});
    state.add({"bytes", {3}, bytes, StatePolicy::kMaximum});
    state.add("seen", seen, StatePolicy::kSum);
    state.add("own", own, StatePolicy::kKeepOwn);
  }
  std::vector<float> weights, mean, variance;
  std::int64_t steps;
  std::int32_t negative;
  std::vector<double> tiny;
  std::vector<std::int8_t> bytes;
  std::int64_t seen;
  double own;
  State state;
};

class StateSyncTest : public testing::TestWithParam<const char*> {};

TEST_P(StateSyncTest, AveragesEachItemByItsPolicy) {
  run_local(3, [](Communicator& comm) {
    const auto synchronizer =
        make_synchronizer(GetParam(), comm, {.group_size = 3, .local_steps = 1});
    Worker worker(comm.rank());
    StateSync sync(comm, *synchronizer, worker.state);
    sync.begin();
    sync.average(0);
    const auto check = [&] {
      EXPECT_THAT(worker.weights, Each(1));
      EXPECT_THAT(worker.mean, Each(2));
      // Of the mixture of N(0, 1), N(2, 2) and N(4, 3): 2 within, 8/3 between.
      EXPECT_THAT(worker.variance, Each(testing::FloatNear(2 + 8 / 3.0F, 1e-5F)));
      EXPECT_EQ(worker.steps, (std::int64_t{1} << 40) + 140'000);
      EXPECT_EQ(worker.negative, -1);
      EXPECT_THAT(worker.tiny, ElementsAre(std::numeric_limits<double>::min(), 0));
      EXPECT_THAT(worker.bytes, ElementsAre(0, 7, 2));
      EXPECT_EQ(worker.seen, comm.rank());
      EXPECT_EQ(worker.own, comm.rank());
    };
    check();
    sync.finish();
    check();
  });
}
INSTANTIATE_TEST_SUITE_P(Methods, StateSyncTest,
                         testing::Values("all_reduce", "local_sgd", "partial_reduce"));

TEST(StateSync, LeavesAWorkerAloneAsItIs) {
  run_local(1, [](Communicator& comm) {
    const auto synchronizer = make_synchronizer("all_reduce", comm, {});
    Worker worker(0);
    worker.variance[0] = 0.1F;
    worker.mean[0] = 1e6F;  // whose square would swallow the variance
    StateSync sync(comm, *synchronizer, worker.state);
    sync.begin();
    sync.average(0);
    EXPECT_EQ(worker.variance[0], 0.1F);
  });
}

// Momentum and Adam: after steps on different gradients, moments are means and counters maxima, and
// the next step of all is the same.
TEST(StateSync, WorkersMakeTheSameNextStepAfterAnAverage) {
  run_local(3, [](Communicator& comm) {
    for (const char* kind : {"momentum", "adam"}) {
      std::vector<double> x(4, 1);
      std::unique_ptr<Optimizer> optimizer;
      if (std::string(kind) == "momentum") {
        optimizer = std::make_unique<Sgd>(x, SgdOptions{.learning_rate = 0.1, .momentum = 0.9});
      } else {
        optimizer = std::make_unique<Adam>(x, AdamOptions{.learning_rate = 0.1});
      }
      State state;
      state.add({"x", {4}, x});
      const auto step = [&](double slope) {
        const std::vector<double> gradient(4, slope);
        optimizer->update(x, gradient);
      };
      step(1);  // which makes the moments
      optimizer->list(state);
      for (int i = 0; i < comm.rank(); ++i) step(comm.rank());  // r + 1 steps
      const auto synchronizer = make_synchronizer("all_reduce", comm, {});
      StateSync sync(comm, *synchronizer, state);
      sync.begin();
      sync.average(0);
      step(0.5);
      std::vector<double> all(12);
      comm.all_gather(x, all).wait();
      for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], x[i % 4]) << kind;
    }
  });
}

TEST(StateSync, RefusesWhatItCannotAverage) {
  run_local(2, [](Communicator& comm) {
    Worker worker(comm.rank());
    const auto server = make_synchronizer("parameter_server", comm, {});
    test::expect_error(ErrorCode::kInvalid, {"parameter_server", "changes"},
                       [&] { StateSync(comm, *server, worker.state); });
    const auto mixing = make_synchronizer("all_reduce", comm, {});
    std::vector<double> wide(2);
    State bad;
    bad.add({"mean", {2}, worker.mean});
    bad.add({"variance", {2}, wide, StatePolicy::kAverage, "mean"});
    test::expect_error(ErrorCode::kInvalid, {"variance", "mean"},
                       [&] { StateSync(comm, *mixing, bad); });
    State integers;
    integers.add("count", worker.seen, StatePolicy::kAverage);
    test::expect_invalid([&] { StateSync(comm, *mixing, integers); });
  });
}

// A model with batch normalisation ends with one state on all workers, trained unevenly.
TEST(StateSync, TrainerAveragesRunningStatisticsToo) {
  run_local(3, [](Communicator& comm) {
    const auto synchronizer = make_synchronizer("partial_reduce", comm, {.group_size = 2});
    Trainer trainer(comm, *synchronizer, {});
    Worker worker(0);
    trainer.run(worker.state, [&](std::int64_t step) {
      if (step == 3 + comm.rank()) return false;
      worker.mean[0] += static_cast<float>(comm.rank());
      ++worker.steps;
      return true;
    });
    EXPECT_GE(worker.steps, (std::int64_t{1} << 40) + 5);  // who made the most
    std::vector<float> all(6);
    comm.all_gather(worker.variance, all).wait();
    for (std::size_t i = 2; i < all.size(); ++i) EXPECT_EQ(all[i], all[i % 2]);
    EXPECT_GE(worker.variance[0], 1);
  });
}

}  // namespace
}  // namespace motley::runtime
