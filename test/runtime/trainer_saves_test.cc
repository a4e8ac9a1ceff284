// Shows that a job whose workers make uneven steps goes on after it was killed: each worker with
// its own position, all with the mean of the models of those that had saved lately.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "comm/local.h"
#include "runtime/synchronizer.h"
#include "runtime/trainer.h"
#include "test/support/errors.h"
#include "test/support/forked_ranks.h"

namespace motley::runtime {
namespace {

using ::testing::Each;

// What a worker has, and how it trains.
struct Work {
  explicit Work(Communicator& comm_, const std::string& folder,
                const std::string& method = "partial_reduce")
      : comm(comm_), synchronizer(make_synchronizer(method, comm, {.group_size = 2})) {
    state.add({"model", {model.size()}, model, StatePolicy::kAverage});
    options.state.add("position", position, StatePolicy::kKeepOwn);
    options.autosave = {.folder = folder, .every_steps = 5};
  }
  // Up to so many steps of this worker, each of which adds `gain`; but at least `more`.
  std::int64_t train(std::int64_t steps, double gain, std::int64_t more = 0) {
    Trainer trainer(comm, *synchronizer, options);
    const std::int64_t made = trainer.run(state, [&](std::int64_t step) {
      EXPECT_EQ(position, step) << "rank " << comm.rank();
      if (first < 0) first = step;
      if (step >= std::max(steps, first + more)) return false;
      for (double& x : model) x += gain;
      ++position;
      return true;
    });
    resumed = trainer.resumed().has_value();
    return made;
  }

  Communicator& comm;
  std::unique_ptr<Synchronizer> synchronizer;
  std::vector<double> model = std::vector<double>(100);
  std::int64_t position = 0;
  State state;
  TrainerOptions options;
  std::int64_t first = -1;
  bool resumed = false;
};

class TrainerSaves : public ::testing::TestWithParam<std::string> {};

// Scenario 38: no counter is lost. Uneven steps: 10, 20 and 30, and then 5 more of each.
TEST_P(TrainerSaves, EachWorkerGoesOnWhereItWas) {
  const test::TemporaryFolder folder;
  double before = 0;
  const auto train = [&](bool again) {
    run_local(3, [&](Communicator& comm) {
      Work work(comm, folder.path(), GetParam());
      const std::int64_t had = 10 * (comm.rank() + 1);
      const std::int64_t steps = again ? had + 5 : had;
      EXPECT_EQ(work.train(steps, again ? 0 : 1), steps);
      EXPECT_EQ(work.resumed, again);
      EXPECT_EQ(work.first, again ? had : 0);
      EXPECT_EQ(work.position, steps);
      EXPECT_THAT(work.model, Each(work.model[0]));
      if (again) {
        EXPECT_EQ(work.model[0], before);
      }
      comm.barrier().wait();
      if (comm.rank() == 0) before = work.model[0];
    });
  };
  train(false);
  train(true);
}

INSTANTIATE_TEST_SUITE_P(Methods, TrainerSaves,
                         ::testing::Values("partial_reduce", "all_reduce", "local_sgd"),
                         [](const auto& test) { return test.param; });

// Worker 2 has an old model when workers 0 and 1 go on: it has no part in the mean.
TEST(TrainerSaves, LeavesOldModelsOutOfTheMean) {
  const test::TemporaryFolder folder;
  Duration first_run{};
  const auto train = [&](int workers, double gain) {
    run_local(workers, [&](Communicator& comm) {
      Work work(comm, folder.path());
      work.options.state = {};  // fewer workers may go on
      work.position = 0;
      const TimePoint begin = comm.clock().now();
      Trainer trainer(comm, *work.synchronizer, work.options);
      const std::int64_t end = workers == 2 ? 2 : 1;
      trainer.run(work.state, [&](std::int64_t step) {
        if (step >= end) return false;
        for (double& x : work.model) x += gain;
        if (workers == 2) comm.clock().sleep_until(begin + 5 * first_run);
        return true;
      });
      comm.barrier().wait();
      if (workers == 3 && comm.rank() == 0 && first_run == Duration{}) {
        first_run = comm.clock().now() - begin + std::chrono::milliseconds(20);
      }
      if (workers == 3) {
        EXPECT_THAT(work.model, Each(gain > 0 ? 4 : 104));
      }
    });
  };
  train(3, 4);
  train(2, 100);
  train(3, 0);
}

TEST(TrainerSaves, RefusesToLoseWhatMoreWorkersHad) {
  const test::TemporaryFolder folder;
  run_local(3, [&](Communicator& comm) { Work(comm, folder.path()).train(5, 1); });
  std::atomic<int> refused{0};
  run_local(2, [&](Communicator& comm) {
    Work work(comm, folder.path());
    test::expect_error(ErrorCode::kInvalid, {"worker-2", "Start as many"},
                       [&] { work.train(10, 1); });
    ++refused;
  });
  EXPECT_EQ(refused, 2);
  run_local(4, [&](Communicator& comm) {
    Work work(comm, folder.path());
    EXPECT_EQ(work.train(6, 1), 6);
    EXPECT_EQ(work.resumed, comm.rank() < 3);
    EXPECT_EQ(work.first, comm.rank() < 3 ? 5 : 0);
  });
}

// Four processes are killed at once, in the middle of whatever they do, and started again.
TEST(TrainerSavesProcesses, AKilledJobGoesOn) {
  constexpr int kWorkers = 4;
  const test::TemporaryFolder folder;
  const auto train = [&](int job, std::int64_t steps) {
    return [&, job, steps](int rank, Store&) {
      setenv("MOTLEY_RANK", std::to_string(rank).c_str(), 1);
      setenv("MOTLEY_SIZE", std::to_string(kWorkers).c_str(), 1);
      const std::string meeting = folder / ("job" + std::to_string(job));
      setenv("MOTLEY_CONTROLLER", ("file:" + meeting).c_str(), 1);
      Communicator comm = Communicator::join(Options::from_environment());
      Work work(comm, folder / "saved");
      work.options.base_step = std::chrono::milliseconds(1);
      const std::int64_t made = work.train(steps, 1, 20);
      const bool went_on = work.resumed && work.first >= 5;
      return went_on && made >= work.first + 20 && work.model == std::vector(100, work.model[0]);
    };
  };
  {
    test::ForkedRanks killed(kWorkers, train(1, 1'000'000'000));
    for (int rank = 0; rank < kWorkers; ++rank) {
      const std::string index =
          folder / ("saved/worker-" + std::to_string(rank) + "/00000002.index");
      const TimePoint deadline = Clock::real().now() + seconds(60);
      while (!std::filesystem::exists(index)) {
        ASSERT_LT(Clock::real().now(), deadline) << "rank " << rank << " has not saved";
        Clock::real().sleep_until(Clock::real().now() + seconds(0.001));
      }
    }
  }
  test::ForkedRanks again(kWorkers, train(2, 0));
  for (int rank = 0; rank < kWorkers; ++rank) EXPECT_TRUE(again.succeeded(rank)) << rank;
}

}  // namespace
}  // namespace motley::runtime
