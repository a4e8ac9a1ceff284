// Shows that the training loop averages when it should, measures where time goes, and ends with one
// model on all workers, with each synchronizer; ranks are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/metrics.h"
#include "runtime/straggler.h"
#include "runtime/synchronizer.h"
#include "runtime/trainer.h"
#include "test/support/errors.h"
#include "test/support/manual_clock.h"
#include "test/support/rank_runner.h"
#include "test/support/temporary_folder.h"

namespace motley::runtime {
namespace {

using test::expect_invalid;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::SizeIs;

TEST(Straggler, MultipliesAStepThatIsAtLeastTheBaseStep) {
  test::ManualClock clock;
  const auto step = [&clock](double slow, double base, double work) {
    const TimePoint begin = clock.now();
    clock.sleep_until(begin + seconds(work));
    Straggler(clock, slow, seconds(base)).lengthen(begin);
    return to_seconds(clock.now() - begin);
  };
  EXPECT_NEAR(step(1, 0, 0.5), 0.5, 1e-9);
  EXPECT_NEAR(step(4, 0, 0.5), 2, 1e-9);
  EXPECT_NEAR(step(1, 2, 0.5), 2, 1e-9);
  EXPECT_NEAR(step(4, 2, 0.5), 8, 1e-9);
  EXPECT_NEAR(step(4, 2, 3), 12, 1e-9);
}

// Rank r adds r + 1 to each parameter at each step: the mean grows by (ranks + 1) / 2. Sizes that
// are sums of few small numbers, so that floats are exact for 1, 2 and 4 ranks.
class AveragingTraining : public ::testing::TestWithParam<int> {};

TEST_P(AveragingTraining, AllReduceGivesAllTheMeanAfterEveryStep) {
  const int size = GetParam();
  test::run_ranks(size, [](Communicator& comm) {
    const auto synchronizer = make_synchronizer("all_reduce", comm, {});
    EXPECT_FALSE(synchronizer->survives_loss());
    Trainer trainer(comm, *synchronizer, {});
    std::vector<float> model(5);
    const float mean = static_cast<float>(comm.size() + 1) / 2;
    std::vector<Round> rounds;
    trainer.on_round([&](const Round& round) {
      rounds.push_back(round);
      EXPECT_THAT(model, Each(mean * static_cast<float>(round.step))) << "rank " << comm.rank();
    });
    const auto steps = trainer.run(model, [&](std::int64_t step) {
      if (step == 3) return false;
      for (float& x : model) x += static_cast<float>(comm.rank() + 1);
      return true;
    });
    EXPECT_EQ(steps, 3);
    ASSERT_THAT(rounds, SizeIs(4));  // the last is finish()
    for (const Round& round : rounds) {
      EXPECT_EQ(round.group, comm.world().ranks());
      EXPECT_LE(round.start, round.computed);
      EXPECT_LE(round.computed, round.together);
      EXPECT_LE(round.together, round.end);
    }
  });
}

TEST_P(AveragingTraining, PartialReduceEndsWithOneModelAndTheMeanKept) {
  const int size = GetParam();
  test::run_ranks(size, [](Communicator& comm) {
    const auto synchronizer = make_synchronizer("partial_reduce", comm, {.group_size = 2});
    EXPECT_TRUE(synchronizer->survives_loss());
    Trainer trainer(comm, *synchronizer, {});
    std::vector<double> model(3);
    // Workers make different numbers of steps: rank r makes 4 + r.
    trainer.run(model, [&](std::int64_t step) {
      if (step == 4 + comm.rank()) return false;
      for (double& x : model) x += 1;
      return true;
    });
    // Averages keep the sum of all models, so the mean is that of the steps.
    EXPECT_NEAR(model[0], 4 + (comm.size() - 1) / 2.0, 1e-9) << "rank " << comm.rank();
    EXPECT_THAT(model, Each(model[0]));
  });
}
// Of two local steps the second is averaged while it is made, from the last parameter to the first;
// of every third round nothing is told, so that all is averaged at the end.
TEST_P(AveragingTraining, PartialReduceAveragesInPiecesWhileAStepIsMade) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    const auto synchronizer = make_synchronizer("partial_reduce", comm,
                                                {.group_size = 2, .partial = {.piece_bytes = 16}});
    ASSERT_TRUE(synchronizer->overlaps());
    Trainer trainer(comm, *synchronizer, {.sync_every = 2});
    std::vector<double> model(5);
    trainer.run(model, [&](std::int64_t step) {
      if (step == 24 + 2 * comm.rank()) return false;
      for (std::size_t i = model.size(); i-- > 0;) {
        model[i] += 1;
        if (step / 2 % 3 != 0) trainer.ready(i, 1);
      }
      return true;
    });
    EXPECT_NEAR(model[0], 24 + comm.size() - 1, 1e-9) << "rank " << comm.rank();
    EXPECT_THAT(model, Each(model[0]));
  });
}

TEST(Trainer, RefusesAStepThatWasBegunAndNotMade) {
  test::run_ranks(1, [](Communicator& comm) {
    const auto synchronizer =
        make_synchronizer("partial_reduce", comm, {.partial = {.piece_bytes = 16}});
    Trainer trainer(comm, *synchronizer, {});
    std::vector<double> model(5);
    expect_invalid([&] {
      trainer.run(model, [&](std::int64_t) {
        trainer.ready(0, 5);
        return false;
      });
    });
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, AveragingTraining, ::testing::Values(1, 2, 4));

TEST(Trainer, StopsAWorkerThatIsAlone) {
  test::run_ranks(3, [](Communicator& comm) {
    const auto synchronizer = make_synchronizer("partial_reduce", comm, {.group_size = 2});
    Trainer trainer(comm, *synchronizer, {.when_alone = WhenAlone::kStop});
    std::vector<float> model(1);
    const std::int64_t own = comm.rank() == 2 ? 1'000'000'000 : 5;
    const auto steps = trainer.run(model, [&](std::int64_t step) { return step < own; });
    if (comm.rank() == 2) {
      EXPECT_LT(steps, own);
    }
  });
}

TEST(Trainer, AveragesEverySoManySteps) {
  test::run_ranks(2, [](Communicator& comm) {
    const auto synchronizer = make_synchronizer("all_reduce", comm, {});
    Trainer trainer(comm, *synchronizer, {.sync_every = 3});
    std::vector<float> none;
    std::vector<std::int64_t> steps;
    trainer.on_round([&](const Round& round) { steps.push_back(round.step); });
    EXPECT_EQ(trainer.run(none, [](std::int64_t step) { return step < 7; }), 7);
    EXPECT_THAT(steps, ElementsAre(3, 6, 7, 7));
  });
}

// Keeps what it is told, in order.
class Noting final : public Synchronizer {
 public:
  explicit Noting(std::vector<std::string>& notes) : notes_(notes) {}
  const char* name() const noexcept override { return "noting"; }
  bool survives_loss() const noexcept override { return true; }
  void announce(std::int64_t step) override { note("announce", step); }
  SyncReport average(View, std::int64_t step) override {
    note("average", step);
    return {.group = {0}};
  }
  SyncReport finish(View) override { return {.group = {0}}; }

 private:
  void note(const char* what, std::int64_t step) {
    notes_.push_back(std::string(what) + " " + std::to_string(step));
  }
  std::vector<std::string>& notes_;
};

// As its last local step begins; not one of fewer steps, of which nobody knew.
TEST(Trainer, AnnouncesEachAverage) {
  test::run_ranks(1, [](Communicator& comm) {
    std::vector<std::string> notes;
    Noting synchronizer(notes);
    Trainer trainer(comm, synchronizer, {.sync_every = 3});
    std::vector<float> none;
    trainer.run(none, [&](std::int64_t step) {
      notes.push_back("step " + std::to_string(step));
      return step < 4;
    });
    EXPECT_THAT(notes, ElementsAre("step 0", "step 1", "announce 3", "step 2", "average 3",
                                   "step 3", "step 4", "average 4"));
  });
}

TEST(Trainer, TakesTheTimeOfHooksOut) {
  test::run_ranks(1, [](Communicator& comm) {
    const auto synchronizer = make_synchronizer("none", comm, {});
    Trainer trainer(comm, *synchronizer, {});
    std::vector<float> model(1);
    Duration end{};
    trainer.on_round([&](const Round& round) {
      end = round.end;
      comm.clock().sleep_until(comm.clock().now() + seconds(0.2));
    });
    trainer.run(model, [](std::int64_t step) { return step < 2; });
    EXPECT_LT(to_seconds(end), 0.2);  // two hooks took 0.4 s
  });
}

TEST(Trainer, RejectsBadOptions) {
  test::run_ranks(1, [](Communicator& comm) {
    const auto none = make_synchronizer("none", comm, {});
    expect_invalid([&] { Trainer(comm, *none, {.sync_every = 0}); });
    expect_invalid([&] { Trainer(comm, *none, {.slow = 0.5}); });
    expect_invalid([&] { Trainer(comm, *none, {.slow = std::nan("")}); });
    expect_invalid([&] { make_synchronizer("gossip", comm, {}); });
    expect_invalid([&] { make_synchronizer("none", comm, {.finish_timeout = {}}); });
  });
}

TEST(Metrics, RoundsComeBackFromTheirFile) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "rounds.jsonl";
  const Round round{.rank = 2,
                    .step = 17,
                    .start = seconds(0.5),
                    .computed = seconds(1),
                    .together = seconds(1.5),
                    .end = seconds(2.5),
                    .group = {0, 2}};
  {
    MetricsLog log(path);
    log.write(round);
    log.write({});
    log.flush();
  }
  const std::vector<Round> rounds = read_rounds(path);
  ASSERT_THAT(rounds, SizeIs(2));
  EXPECT_EQ(rounds[0].rank, 2);
  EXPECT_EQ(rounds[0].step, 17);
  EXPECT_EQ(rounds[0].computed, seconds(1));
  EXPECT_THAT(rounds[0].group, ElementsAre(0, 2));
  const TimeShares shares = time_shares(rounds);
  EXPECT_NEAR(shares.computing, 0.25, 1e-9);
  EXPECT_NEAR(shares.waiting, 0.25, 1e-9);
  EXPECT_NEAR(shares.averaging, 0.5, 1e-9);
  EXPECT_EQ(time_shares({}).computing, 0);
}

// Scenario 43: all workers are told who is slow, by how much, and what the others lose by it.
TEST(Metrics, RanksWorkersBySlowness) {
  const auto totals = [](int rank, double step) {
    Totals one(rank);
    for (int i = 1; i <= 10; ++i) {
      one.add({.rank = rank,
               .step = i,
               .start = {},
               .computed = seconds(step),
               .together = seconds(0.4),
               .end = seconds(0.5),
               .group = {0, 1, 2}});
    }
    return one;
  };
  const auto check = [](const std::vector<Standing>& standings) {
    ASSERT_THAT(standings, SizeIs(3));
    EXPECT_EQ(standings[0].rank, 2);
    EXPECT_NEAR(standings[0].slowness, 4, 1e-6);
    EXPECT_NEAR(to_seconds(standings[0].waiting), 0, 1e-6);
    EXPECT_EQ(standings[1].rank, 0);
    EXPECT_NEAR(to_seconds(standings[1].waiting), 0.3, 1e-6);
    EXPECT_EQ(standings[2].steps, 10);
    EXPECT_THAT(to_text(standings), ::testing::HasSubstr("worker 2: 400.0 ms a step, 4.0 times"));
  };
  check(rank_stragglers({totals(0, 0.1), totals(1, 0.05), totals(2, 0.4)}));
  test::run_ranks(3, [&](Communicator& comm) {
    const double step = comm.rank() == 0 ? 0.1 : comm.rank() == 1 ? 0.05 : 0.4;
    check(rank_stragglers(comm, totals(comm.rank(), step)));
  });
  EXPECT_TRUE(rank_stragglers(std::vector<Totals>{}).empty());
}

TEST(Metrics, TrainerKeepsTheFilesThatItIsToldTo) {
  const test::TemporaryFolder folder;
  test::run_ranks(2, [&](Communicator& comm) {
    const std::string prefix = folder / ("worker" + std::to_string(comm.rank()));
    const auto synchronizer = make_synchronizer("all_reduce", comm, {});
    Trainer trainer(comm, *synchronizer,
                    {.round_log = prefix + ".jsonl",
                     .trace = prefix + ".trace.json",
                     .prometheus = prefix + ".prom"});
    std::vector<float> model(3);
    trainer.run(model, [](std::int64_t step) { return step < 3; });
    EXPECT_THAT(read_rounds(prefix + ".jsonl"), SizeIs(4));
    const auto text_of = [](const std::string& path) {
      std::ifstream file(path);
      return std::string(std::istreambuf_iterator<char>(file), {});
    };
    const std::string trace = text_of(prefix + ".trace.json");
    EXPECT_EQ(trace.front(), '[');
    EXPECT_THAT(trace, ::testing::HasSubstr("\"name\":\"averaging\""));
    EXPECT_THAT(trace, ::testing::HasSubstr("\"group\":[0,1]"));
    const std::string totals = text_of(prefix + ".prom");
    const std::string rank = std::to_string(comm.rank());
    EXPECT_THAT(totals, ::testing::HasSubstr("motley_steps_total{rank=\"" + rank + "\"} 3\n"));
    EXPECT_THAT(totals, ::testing::HasSubstr("members=\"2\"} 4\n"));
    test::expect_error(ErrorCode::kIo, {folder / "none"},
                       [&] { Trainer(comm, *synchronizer, {.trace = folder / "none/trace"}); });
  });
}

TEST(Metrics, NamesTheLineThatIsNoRound) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "bad.jsonl";
  std::ofstream(path) << "{\"rank\":1}\n";
  test::expect_error(ErrorCode::kInvalid, {path + ":1: ", "step"},
                     [&] { return read_rounds(path); });
  test::expect_error(ErrorCode::kIo, {}, [&] { return read_rounds(path + ".missing"); });
}

}  // namespace
}  // namespace motley::runtime
