// Shows that a worker's death costs nothing that was learnt: those that live stand where a run does
// that learnt the step without it. Workers are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "comm/error.h"
#include "test/wide/sharded_workers.h"
#include "test/wide/skewed_rows.h"

namespace motley::wide {
namespace {

using test::Death, test::distance, test::dying, test::fm_options, test::in_batches, test::kBatch;
using test::Learnt, test::sharded, test::skewed_rows;
using test::Milestone;

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

// All have what the step needs; then worker 3 dies, and workers `behind` hear of it before they
// apply the step, which the others do.
ShardOptions half_applied(Communicator& comm, std::int64_t step, const std::set<int>& behind,
                          const std::shared_ptr<Milestone>& arrivals) {
  ShardOptions shards{.hot = 20};
  shards.on_apply = [=, rank = comm.rank(), first = true](std::int64_t now) mutable {
    if (now != step || !std::exchange(first, false)) return;
    arrivals->advance();
    if (rank != 3 && !behind.contains(rank)) return;
    EXPECT_TRUE(arrivals->await(3)) << "step " << step;
    if (rank == 3) throw Death();
    throw Error(ErrorCode::kPeerLost, "as if a call of this worker had found it out", {3});
  };
  return shards;
}

struct Case {
  ModelKind kind;
  Optimizer optimizer;
};
class ShardedRollback : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Models, ShardedRollback,
                         testing::Values(Case{ModelKind::kFm, Optimizer::kAdaGrad},
                                         Case{ModelKind::kFm, Optimizer::kAdam},
                                         Case{ModelKind::kLogistic, Optimizer::kFtrl}),
                         [](const auto& i) {
                           return std::string(name(i.param.kind)) + "_" + name(i.param.optimizer);
                         });

// Who had applied the step goes back, to the bits of a run in which it was not begun: in the first
// step, the last of an epoch, and the first of the next.
TEST_P(ShardedRollback, LeavesNothingOfAStepThatSomeHadApplied) {
  const Dataset data = skewed_rows({.rows = 400, .complete = false});
  TrainOptions options = fm_options();
  options.model.kind = GetParam().kind;
  options.model.optimizer = GetParam().optimizer;
  for (const std::int64_t step : {0, 2, 3}) {
    const Learnt restored = sharded(4, data, std::nullopt, options, [&](Communicator& comm) {
      return dying(comm, 3, step, &ShardOptions::on_compute);
    });
    for (const std::set<int>& behind : {std::set{1}, std::set{0, 2}}) {
      const auto arrivals = std::make_shared<Milestone>();
      const Learnt learnt = sharded(4, data, std::nullopt, options, [&](Communicator& comm) {
        return half_applied(comm, step, behind, arrivals);
      });
      EXPECT_THAT(learnt.workers, testing::ElementsAre(0, 1, 2));
      EXPECT_EQ(learnt.state, restored.state) << "step " << step << ", worker " << *behind.begin();
      ASSERT_EQ(learnt.reports.size(), restored.reports.size());
      for (std::size_t e = 0; e < learnt.reports.size(); ++e)
        EXPECT_EQ(learnt.reports[e].train_loss, restored.reports[e].train_loss) << "epoch " << e;
    }
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

}  // namespace
}  // namespace motley::wide
