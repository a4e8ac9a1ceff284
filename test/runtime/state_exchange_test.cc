// Workers average, compare and hand over what they listed, each item by its policy.
#include "runtime/state_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "comm/local.h"
#include "test/support/errors.h"

namespace motley::runtime {
namespace {

using testing::Each;

// What a worker has: everything is its rank, or counts from it.
struct Worker {
  explicit Worker(int rank)
      : weights(100, static_cast<float>(rank)),
        moment(7, rank),
        steps(10 + rank),
        seen(rank + 1),
        own(rank) {
    state.add({"weights", {10, 10}, weights, StatePolicy::kAverage});
    state.add({"moment", {7}, moment, StatePolicy::kAverage});
    state.add("steps", steps, StatePolicy::kMaximum);
    state.add("seen", seen, StatePolicy::kSum);
    state.add("own", own, StatePolicy::kKeepOwn);
  }
  std::vector<float> weights;
  std::vector<double> moment;
  std::int64_t steps;
  std::int64_t seen;
  double own;
  State state;
};

TEST(StateExchange, AveragesEachItemByItsPolicy) {
  run_local(4, [](Communicator& comm) {
    Worker worker(comm.rank());
    check_alike(comm, worker.state);
    average(comm, worker.state);
    EXPECT_THAT(worker.weights, Each(1.5f));
    EXPECT_THAT(worker.moment, Each(1.5));
    EXPECT_EQ(worker.steps, 13);
    EXPECT_EQ(worker.seen, comm.rank() + 1);
    EXPECT_EQ(worker.own, comm.rank());
  });
}

TEST(StateExchange, AveragesOverAGroupAndLeavesOthersAlone) {
  run_local(4, [](Communicator& comm) {
    Worker worker(comm.rank());
    const Group group({1, 3}, {.id = 5});
    if (group.contains(comm.rank())) average(comm, worker.state, {.group = &group});
    const float own = static_cast<float>(comm.rank());
    EXPECT_THAT(worker.weights, Each(group.contains(comm.rank()) ? 2.f : own));
  });
}

TEST(StateExchange, GivesAJoinerWhatIsShared) {
  run_local(4, [](Communicator& comm) {
    Worker worker(comm.rank());
    const Group pair({2, 0}, {.id = 6});  // 0 joins, from 2
    if (!pair.contains(comm.rank())) return;
    hand_over(comm, worker.state, 2, {.group = &pair});
    EXPECT_THAT(worker.weights, Each(2.f));
    EXPECT_THAT(worker.moment, Each(2.));
    EXPECT_EQ(worker.steps, 12);
    EXPECT_EQ(worker.seen, comm.rank() == 2 ? 3 : 0) << "a joiner has counted nothing";
    EXPECT_EQ(worker.own, comm.rank());
  });
}

TEST(StateExchange, PartialScenario8NamesOnEveryWorkerTheItemThatDiffers) {
  run_local(3, [](Communicator& comm) {
    Worker worker(comm.rank());
    State other;
    std::vector<float> extra(comm.rank() == 2 ? 5 : 4);
    other.append("a.", worker.state);
    other.add({"extra", {extra.size()}, extra, StatePolicy::kAverage});
    test::expect_error(ErrorCode::kMismatch, {"item 5", "rank 0", "rank 2", "extra"},
                       [&] { check_alike(comm, other); });
    State same_but_one;
    same_but_one.append("a.", worker.state);
    if (comm.rank() == 1) same_but_one.add("more", worker.own, StatePolicy::kKeepOwn);
    test::expect_error(ErrorCode::kMismatch, {comm.rank() == 1 ? "6 items here" : "5 items here"},
                       [&] { hand_over(comm, same_but_one, 0); });
    EXPECT_THAT(worker.weights, Each(static_cast<float>(comm.rank()))) << "nothing was handed over";
  });
}

}  // namespace
}  // namespace motley::runtime
