// Partial-reduce where ranks come late and the controller goes: ranks step on alone for a while,
// and average again once there is another.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <semaphore>

#include "comm/controller.h"
#include "comm/partial_reduce.h"
#include "test/comm/partial_ranks.h"

namespace motley::test {
namespace {

using testing::Each;
using testing::ElementsAre;

// A rank that comes back, or comes late, takes the average of the others and counts nothing, though
// its own model has nothing wrong with it.
TEST(PartialReduce, PartialScenario3ALateRankTakesTheStateOfOthers) {
  std::atomic<bool> joined{false};
  run(3, [&](Communicator& comm, LocalControl&) {
    PartialReducer reducer(comm, {.group_size = 2});
    std::vector<double> model(100, comm.rank() == 2 ? 1000.0 : 7.0);
    if (comm.rank() == 2) {
      const PartialResult result = reducer.join(model, 0);
      EXPECT_THAT(model, Each(7.0));
      EXPECT_THAT(result.group, ElementsAre(0, 1, 2));
      EXPECT_THAT(result.weights, ElementsAre(0.5, 0.5, 0));
      EXPECT_GE(result.version, 10);
      joined = true;
      return;
    }
    for (std::int64_t step = 10; !joined; ++step) reducer.average(model, step);
    EXPECT_THAT(model, Each(7.0));
  });
}

// Of four ranks two do not average, and groups are of three: the two others wait for them for a
// while, and go on. One comes in the end, and is in the groups from then on; one stays away.
TEST(PartialReduce, PartialScenario3RanksThatNeverAverageHoldNobodyUp) {
  constexpr Duration kEnough = seconds(20);
  LocalControl control(4, seconds(0.8));
  std::counting_semaphore<> paired(0), ended(0);
  run_threads(
      4, [&](int rank) { return control.connect(rank); },
      [&](Communicator& comm) {
        if (comm.rank() == 3) {
          for (int other = 0; other < 3; ++other) EXPECT_TRUE(ended.try_acquire_for(3 * kEnough));
          return;
        }
        std::vector<double> model(100, comm.rank());
        PartialReducer reducer(comm, {.group_size = 3});
        std::int64_t step = 0;
        const auto average_until = [&](const std::vector<int>& group) {
          while (reducer.average(model, step++).group != group) {
          }
        };
        if (comm.rank() == 2) {
          EXPECT_TRUE(paired.try_acquire_for(2 * kEnough));
        } else {
          average_until({0, 1});
          EXPECT_THAT(model, Each(0.5));
          if (comm.rank() == 0) paired.release();
        }
        average_until({0, 1, 2});
        EXPECT_THAT(model, Each(1.0));
        ended.release();
      },
      kEnough);
}

// Partial scenario 24: one rank, with and without a controller, is local training bit for bit.
TEST(PartialReduce, PartialScenario24OneRankTrainsAlone) {
  run(1, [](Communicator& comm, LocalControl&) {
    PartialReducer reducer(comm, {.group_size = 2});
    std::vector<float> model = {0.1f, -0.0f, std::nanf("")};
    const std::vector<float> before = model;
    EXPECT_TRUE(reducer.average(model, 0).solo());
    EXPECT_EQ(std::memcmp(model.data(), before.data(), 12), 0);
  });
}

// Until it was of all three ranks: one may come long after the others, which go on without it.
// Returns how often there was no controller.
int average_all(PartialReducer& reducer, std::vector<double>& model, std::int64_t step) {
  int away = 0;
  for (PartialResult result; result.group.size() < 3; ++step) {
    result = reducer.average(model, step);
    away += result.controller_away ? 1 : 0;
  }
  return away;
}

// Partial scenario 31: the controller dies; ranks step on alone, a few times, and wait for it then.
// One is started in its place, at the same address, and they average again.
TEST(PartialReduce, PartialScenario31GoesOnWithoutTheControllerUntilItIsBack) {
  constexpr int kSize = 3;
  const ControllerOptions options{.size = kSize, .token = "t", .lease = seconds(0.3)};
  auto controller = std::make_unique<ControllerServer>(options);
  const std::string address = controller->address();
  std::atomic<int> phase{0}, at_barrier{0};
  const auto connect = [&](int rank) {
    Options each;
    each.rank = rank;
    each.size = kSize;
    each.controller = address;
    each.token = "t";
    each.heartbeat = seconds(0.02);
    return connect_control(each, Clock::real());
  };
  const auto meet = [&](int number) {  // rank 0 does what comes between
    if (++at_barrier == kSize * number) at_barrier.notify_all();
    for (int seen = at_barrier; seen < kSize * number; seen = at_barrier) at_barrier.wait(seen);
  };
  run_threads(
      kSize, connect,
      [&](Communicator& comm) {
        PartialReducer reducer(comm, {.group_size = kSize, .local_steps = 4});
        std::vector<double> model(100, comm.rank());
        EXPECT_EQ(average_all(reducer, model, 0), 0);
        meet(1);
        if (comm.rank() == 0) controller.reset();
        meet(2);
        std::fill(model.begin(), model.end(), comm.rank());
        int alone = 0;
        for (int step = 1; step <= 4; ++step) {
          const PartialResult result = reducer.average(model, step);
          alone += result.controller_away ? 1 : 0;
          EXPECT_TRUE(result.solo());
        }
        EXPECT_EQ(alone, 4);
        EXPECT_THAT(model, Each(comm.rank()));
        meet(3);
        if (comm.rank() == 0) {
          controller = std::make_unique<ControllerServer>(ControllerOptions{
              .bind = address, .size = kSize, .token = "t", .lease = options.lease});
        }
        EXPECT_EQ(average_all(reducer, model, 5), 0);  // a fifth step alone it may not make
        EXPECT_THAT(model, Each(1.0));
        phase = 1;
      },
      seconds(20));
  EXPECT_EQ(phase, 1);
}

// The controller dies and a standby takes its place, which ranks find by themselves: they step on
// alone meanwhile, and then all average again, in groups of a later epoch.
TEST(PartialReduce, PartialScenario31AStandbyTakesOver) {
  constexpr int kSize = 3;
  ControllerOptions options{.size = kSize, .token = "t", .lease = seconds(0.3)};
  auto first = std::make_unique<ControllerServer>(options);
  options.standby_for = {first->address()};
  const ControllerServer standby(options);
  const std::string list = first->address() + "," + standby.address();
  std::atomic<int> averaged{0};
  run_threads(
      kSize,
      [&](int rank) {
        Options each;
        each.rank = rank;
        each.size = kSize;
        each.controller = list;
        each.token = "t";
        each.heartbeat = seconds(0.02);
        return connect_control(each, Clock::real());
      },
      [&](Communicator& comm) {
        PartialReducer reducer(comm, {.group_size = kSize, .local_steps = 4});
        std::vector<double> model(100, comm.rank());
        EXPECT_EQ(average_all(reducer, model, 0), 0);
        EXPECT_FALSE(standby.serves());
        comm.barrier().wait();
        if (comm.rank() == 0) first.reset();
        std::fill(model.begin(), model.end(), comm.rank());
        EXPECT_LE(average_all(reducer, model, 1), 4);
        EXPECT_THAT(model, Each(1.0));
        ++averaged;
      },
      seconds(20));
  EXPECT_EQ(averaged, kSize);
  EXPECT_TRUE(standby.serves());
}

// The controller does not come back: an error that names it, after the time that the caller gave.
TEST(PartialReduce, PartialScenario31SaysSoWhenTheControllerDoesNotComeBack) {
  auto controller = std::make_unique<ControllerServer>(
      ControllerOptions{.size = 2, .token = "t", .lease = seconds(0.2)});
  const std::string address = controller->address();
  std::atomic<int> joined{0};
  run_threads(
      2,
      [&](int rank) {
        Options each;
        each.rank = rank;
        each.size = 2;
        each.controller = address;
        each.token = "t";
        each.heartbeat = seconds(0.02);
        return connect_control(each, Clock::real());
      },
      [&](Communicator& comm) {
        PartialReducer reducer(comm, {.group_size = 2, .timeout = seconds(0.5), .local_steps = 1});
        std::vector<double> model(100, comm.rank());
        ++joined;
        joined.notify_all();
        for (int seen = joined; seen < 2; seen = joined) joined.wait(seen);
        if (comm.rank() == 0) controller.reset();
        while (!reducer.average(model, 0).controller_away) {
        }
        expect_error(ErrorCode::kPeerLost, address, [&] { reducer.average(model, 1); });
      },
      seconds(20));
}

}  // namespace
}  // namespace motley::test
