// Sharded training in which nobody waits for a slow worker, when one dies: those that live go on
// from copies, to a loss like the one without the death, and nothing is lost between steps. Workers
// are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <functional>
#include <mutex>

#include "comm/error.h"
#include "test/wide/service_seat.h"
#include "test/wide/sharded_workers.h"
#include "test/wide/skewed_rows.h"
#include "wide/shard/whole_state.h"

namespace motley::wide {
namespace {

using test::Death, test::distance, test::kBatch, test::ServiceSeat;
using test::Milestone, test::skewed_rows;

constexpr int kEpochs = 5;

// What one worker does otherwise than the others.
using Set = std::function<void(Communicator&, TrainOptions&, ShardOptions&)>;

// What those that live save in the end.
struct Saved {
  double loss = 0;  // of the validation rows
  std::vector<EpochReport> reports;
  std::vector<int> workers;
};

Saved trained(int workers, const Set& set) {
  const Dataset data = skewed_rows({.rows = 1800, .features = 8, .complete = false});
  const Dataset valid = skewed_rows({.rows = 1000, .features = 8, .complete = false, .seed = 7});
  const std::string path = testing::TempDir() + "own_pace_death_" + std::to_string(getpid());
  Saved saved;
  std::mutex mutex;
  const auto body = [&](Communicator& comm) {
    TrainOptions options{.model = {.kind = ModelKind::kFm, .factors = 4},
                         .epochs = kEpochs,
                         .prior_factors = 0,
                         .average = 0,
                         .batch_rows = kBatch,
                         .patience = kEpochs};
    ShardOptions shards{.hot = 20, .partial = PartialOptions{.group_size = 2}};
    set(comm, options, shards);
    ShardedRun run(comm, data, valid, options, shards);
    while (run.next_step()) continue;
    run.save(path);
    const std::lock_guard lock(mutex);
    saved.reports = run.reports();
    saved.workers = run.workers();
  };
  try {
    run_local(workers, body);
  } catch (const Death&) {
  }
  const Model model = Model::load(path);
  const Samples samples = model.prepare(valid);
  saved.loss = evaluate(model.scores(samples), samples.labels).loss;
  std::filesystem::remove(path);
  return saved;
}

// The best epoch's loss, which runs without a death differ in by 1 % themselves, and the last
// one's, by 5 %.
void expect_as_without(const Saved& saved, const std::string& when) {
  static const Saved without = trained(3, [](auto&&...) {});
  const double last = saved.reports.back().validation->loss;
  const double last_without = without.reports.back().validation->loss;
  std::printf("%s: log loss %.4f, in the end %.4f; without a death %.4f and %.4f\n", when.c_str(),
              saved.loss, last, without.loss, last_without);
  EXPECT_EQ(saved.reports.size(), std::size_t{kEpochs}) << when;
  EXPECT_NEAR(saved.loss, without.loss, 0.05 * without.loss) << when;
  EXPECT_NEAR(last, last_without, 0.15 * last_without) << when;
}

struct Moment {
  const char* name;
  std::function<void(std::int64_t)> ShardOptions::*when;
  std::int64_t step;
};
class OwnPaceDeath : public testing::TestWithParam<Moment> {};
INSTANTIATE_TEST_SUITE_P(Moments, OwnPaceDeath,
                         testing::Values(Moment{"first_batch", &ShardOptions::on_compute, 0},
                                         Moment{"computes", &ShardOptions::on_compute, 7},
                                         Moment{"has_pushed", &ShardOptions::on_apply, 7},
                                         Moment{"has_pulled_ahead", &ShardOptions::on_ahead, 7},
                                         Moment{"second_epoch", &ShardOptions::on_apply, 20}),
                         [](const auto& i) { return i.param.name; });

// Worker 0 hands out rows, too.
TEST_P(OwnPaceDeath, CostsTheOthersLittle) {
  const Moment& moment = GetParam();
  for (const int rank : {0, 1}) {
    const Saved saved = trained(3, [&](Communicator& comm, TrainOptions&, ShardOptions& shards) {
      if (moment.when == &ShardOptions::on_ahead) shards.pulls = Pulls::kOneStepOld;
      if (comm.rank() != rank) return;
      shards.*moment.when = [&](std::int64_t step) {
        if (step == moment.step) throw Death();
      };
    });
    EXPECT_EQ(saved.workers, rank == 0 ? std::vector({1, 2}) : std::vector({0, 2}));
    expect_as_without(saved, std::string(moment.name) + " of worker " + std::to_string(rank));
  }
}

// Some have begun the next epoch by then, or ended training, and others have not.
TEST(OwnPaceDeaths, WhereAnEpochEndsCostTheOthersLittle) {
  for (const int epoch : {1, kEpochs}) {
    const Saved saved = trained(3, [&](Communicator& comm, TrainOptions& options, auto&) {
      if (comm.rank() != 1) return;
      options.on_epoch = [&](const EpochReport& report) {
        if (report.epoch == epoch) throw Death();
      };
    });
    EXPECT_THAT(saved.workers, testing::ElementsAre(0, 2)) << epoch;
    expect_as_without(saved, "after epoch " + std::to_string(epoch));
  }
}

// Of which little time is left to make up for what is lost.
TEST(OwnPaceDeaths, InTheLastEpochCostTheOthersLittle) {
  for (const int rank : {0, 1}) {
    int steps = 0;  // of the last epoch
    bool is_last = false;
    const Set set = [&](Communicator& comm, TrainOptions& options, ShardOptions& shards) {
      if (comm.rank() != rank) return;
      options.on_epoch = [&](const EpochReport& report) { is_last = report.epoch == kEpochs - 1; };
      shards.on_apply = [&](std::int64_t) {
        if (is_last && ++steps == 4) throw Death();
      };
    };
    const Saved saved = trained(3, set);
    EXPECT_EQ(saved.workers.size(), 2u);
    expect_as_without(saved, "in the last epoch of worker " + std::to_string(rank));
  }
}

// One in each epoch, with its first batch, so that copies are made anew in between.
TEST(OwnPaceDeaths, OfAllButOneAreSurvived) {
  std::array<bool, 4> has_its_turn{};
  const Set set = [&](Communicator& comm, TrainOptions& options, ShardOptions& shards) {
    if (comm.rank() == 2) return;
    bool& dies = has_its_turn[static_cast<std::size_t>(comm.rank())];
    const int epoch = comm.rank() == 3 ? 3 : comm.rank() + 1;
    options.on_epoch = [&dies, epoch](const EpochReport& report) { dies = report.epoch == epoch; };
    shards.on_compute = [&dies](std::int64_t) {
      if (dies) throw Death();
    };
  };
  const Saved saved = trained(4, set);
  EXPECT_THAT(saved.workers, testing::ElementsAre(2));
  EXPECT_EQ(saved.reports.size(), std::size_t{kEpochs});
  EXPECT_LT(saved.reports.back().train_loss, 0.9 * saved.reports.front().train_loss);
}

// All meet in the middle of an epoch; then one dies, and the others save what all had.
TEST(OwnPaceDeaths, BetweenStepsLoseNothing) {
  const Dataset data = skewed_rows({.rows = 600, .complete = false});
  const std::string path = testing::TempDir() + "own_pace_death_" + std::to_string(getpid());
  for (const int copies : {2, 3}) {
    std::vector<float> before;
    const auto body = [&](Communicator& comm) {
      const TrainOptions options{
          .model = {.kind = ModelKind::kFm, .factors = 4}, .average = 0, .batch_rows = kBatch};
      ShardedRun run(comm, data, std::nullopt, options,
                     {.hot = 20, .copies = copies, .partial = PartialOptions{.group_size = 2}});
      for (int i = 0; i < 4; ++i) EXPECT_TRUE(run.next_step());
      std::vector<float> state = run.gather_state();
      if (comm.rank() == 0) before = std::move(state);
      if (comm.rank() == 1) throw Death();
      run.save(path);
      while (run.next_step()) continue;
    };
    EXPECT_THROW(run_local(3, body), Death);
    EXPECT_LT(distance(Model::load(path).weights(), before), 1e-6) << copies << " copies";
    std::filesystem::remove(path);
  }
}

TEST(OwnPaceDeaths, EndTrainingWhereNobodyHasACopy) {
  std::atomic<int> told = 0;
  const Set set = [](Communicator& comm, TrainOptions&, ShardOptions& shards) {
    shards.copies = 1;
    if (comm.rank() != 1) return;
    shards.on_compute = [](std::int64_t step) {
      if (step == 1) throw Death();
    };
  };
  const Dataset data = skewed_rows({.rows = 400, .complete = false});
  const auto body = [&](Communicator& comm) {
    TrainOptions options{.model = {.kind = ModelKind::kFm, .factors = 4},
                         .epochs = 1000,  // so that it makes two steps, however slow it is
                         .average = 0,
                         .batch_rows = kBatch};
    ShardOptions shards{.hot = 20, .partial = PartialOptions{.group_size = 2}};
    set(comm, options, shards);
    ShardedRun run(comm, data, std::nullopt, options, shards);
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

// Two workers, of which the first pushes. The copy that it has of the other's shard is told after
// two pushes; of a third it knows nothing until all copies are told.
TEST(OwnPaceCopies, AreToldAfterAsManyPushesAsThereAreWorkers) {
  const Dataset data = skewed_rows({.rows = 400, .complete = false});
  const TrainOptions options{
      .model = {.kind = ModelKind::kFm, .factors = 4}, .average = 0, .batch_rows = kBatch};
  std::array<ServiceSeat*, 2> seats{};
  Milestone pushed, told;
  const auto body = [&](Communicator& comm) {
    ServiceSeat seat(comm, data, options, {.hot = 20, .partial = PartialOptions{}});
    seats[static_cast<std::size_t>(comm.rank())] = &seat;
    ShardService service(seat.worker(), 10);
    service.open(100 * data.rows());
    comm.barrier().wait();
    const auto is_like_the_shard = [&] {
      const std::span<const float> copy = seat.worker().shards.state(1);
      return std::ranges::equal(copy, seats[1]->worker().shards.state(1));
    };
    for (std::int64_t pushes = 1; pushes <= 3; ++pushes) {
      if (comm.rank() == 0) {
        Step step = seat.step(kBatch);
        EXPECT_TRUE(service.pull(step));
        step.gradients.assign(step.batch.slots.size() * floats_sent(seat.worker().hot.layout()), 1);
        service.push(step);
        service.flush();  // it is applied
        pushed.reach(pushes);
        EXPECT_TRUE(told.await(pushes));
        EXPECT_EQ(is_like_the_shard(), pushes == 2) << pushes;
      } else {
        EXPECT_TRUE(pushed.await(pushes));
        service.flush();  // what was told is there
        told.reach(pushes);
      }
    }
    comm.barrier().wait();
    service.tell_copies();
    service.flush();
    comm.barrier().wait();
    if (comm.rank() == 0) {
      EXPECT_TRUE(is_like_the_shard());
      EXPECT_GT(service.traffic().copies, 0u);
    }
    comm.barrier().wait();
  };
  run_local(2, body);
}

// Each of two workers has a copy of the other's shard that is not like it any more.
TEST(OwnPaceCopies, AreMadeAnewWhereTheyMayLag) {
  const Dataset data = skewed_rows({.rows = 400, .complete = false});
  const TrainOptions options{
      .model = {.kind = ModelKind::kFm, .factors = 4}, .average = 0, .batch_rows = kBatch};
  run_local(2, [&](Communicator& comm) {
    ServiceSeat seat(comm, data, options, {.hot = 20, .partial = PartialOptions{}});
    ShardWorker& worker = seat.worker();
    const auto floats_of = [&](int shard) {
      const std::span<const float> state = worker.shards.state(shard);
      return std::vector<float>(state.begin(), state.end());
    };
    const std::vector<float> given = floats_of(comm.rank()), copy = floats_of(1 - comm.rank());
    std::ranges::fill(worker.shards.state(1 - comm.rank()), 7.0f);
    hand_over(comm, worker.exchange.group(), worker.map, worker.shards,
              {.remembered = Remembered::kNothing, .copies = Copies::kMayLag});
    EXPECT_EQ(floats_of(comm.rank()), given);
    EXPECT_EQ(floats_of(1 - comm.rank()), copy);
  });
}

}  // namespace
}  // namespace motley::wide
