// The executor keeps to the rules of program.h, whatever runs the lanes.
#include "moe/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "comm/communicator.h"
#include "test/support/errors.h"
#include "test/support/rank_runner.h"

namespace motley::moe {
namespace {

using test::expect_error;
using testing::ElementsAre;
using testing::HasSubstr;

Op compute(std::vector<int> after, int priority = 0) {
  return {.kind = OpKind::kEncode, .priority = priority, .after = std::move(after)};
}

// Every operation starts after those that it is after have ended: each writes the sum of theirs.
TEST(Executor, KeepsTheOrderOnAllLanesAndRecordsIt) {
  std::mt19937_64 random(3);
  Executor executor;
  for (int round = 0; round < 20; ++round) {
    Program program{.strategy = "random"};
    for (int i = 0; i < 60; ++i) {
      Op op{.kind = OpKind::kPlan,
            .lane = static_cast<Lane>(random() % kLanes),
            .priority = static_cast<int>(random() % 3)};
      for (int j = 0; j < i; ++j) {
        if (random() % 8 == 0) op.after.push_back(j);
      }
      program.add(op);
    }
    std::vector<std::uint64_t> value(60), expected(60);
    const auto sum = [&](std::vector<std::uint64_t>& values, const Op& op, int index) {
      std::uint64_t total = static_cast<std::uint64_t>(index) + 1;
      for (const int before : op.after) total += 3 * values[static_cast<std::size_t>(before)];
      values[static_cast<std::size_t>(index)] = total;
    };
    for (int i = 0; i < 60; ++i) sum(expected, program.ops[static_cast<std::size_t>(i)], i);
    executor.bind(OpKind::kPlan, [&](const Op& op, int index) { sum(value, op, index); });
    const Timeline times = executor.run(program);
    EXPECT_EQ(value, expected) << "round " << round;
    EXPECT_FALSE(times.simulated);
    for (std::size_t op = 0; op < 60; ++op) {
      EXPECT_LE(times.ops[op].start, times.ops[op].end);
      for (const int before : program.ops[op].after)
        EXPECT_LE(times.ops[static_cast<std::size_t>(before)].end, times.ops[op].start);
    }
  }
}

TEST(Executor, RunsLanesAtTheSameTime) {
  Program program{.strategy = "test"};
  program.add({.kind = OpKind::kFetch, .lane = Lane::kDisk});
  program.add({.kind = OpKind::kEncode, .lane = Lane::kCompute});
  std::atomic<int> here = 0;
  const auto meet = [&](const Op&, int) {  // ends only if both run
    ++here;
    for (int seen = here; seen < 2; seen = here) here.wait(seen);
    here.notify_all();
  };
  Executor executor;
  executor.bind(OpKind::kFetch, meet);
  executor.bind(OpKind::kEncode, meet);
  EXPECT_EQ(executor.run(program).ops.size(), 2u);
}

// As the simulator: the higher priority where a lane has a choice, a fixed order where it talks.
TEST(Executor, TakesTheHigherPriorityFirstAndTalksInAFixedOrder) {
  Program program{.strategy = "test"};
  const int slow = program.add(compute({}, 0));
  const int urgent = program.add(compute({}, 1));
  for (const int after : {slow, urgent}) {
    program.add({.kind = OpKind::kMoveExpert, .lane = Lane::kIntraHost, .after = {after}});
    program.ops.back().priority = after == slow ? 1 : 0;
  }
  std::vector<int> computed, talked;
  Executor executor(Clock::real(), 3);
  executor.bind(OpKind::kEncode, [&](const Op&, int op) { computed.push_back(op); });
  executor.bind(OpKind::kMoveExpert, [&](const Op&, int op) { talked.push_back(op); });
  const Timeline times = executor.run(program);
  EXPECT_THAT(computed, ElementsAre(1, 0));
  EXPECT_THAT(talked, ElementsAre(2, 3));
  EXPECT_EQ(times.rank, 3);
  EXPECT_THAT(to_chrome_trace(std::span(&program, 1), std::span(&times, 1)), HasSubstr("rank 3"));
}

// Posted calls end when something after them starts, in their order, and not before; one by one and
// on threads each ends before the next begins.
TEST(Executor, WaitsForCallsWhenTheyAreNeeded) {
  Program program{.strategy = "test"};
  const int first = program.add({.kind = OpKind::kDispatch, .lane = Lane::kIntraHost});
  const int second = program.add({.kind = OpKind::kCombine, .lane = Lane::kIntraHost});
  program.add(compute({}));
  program.add(compute({second}));
  for (const LaneThreads threads :
       {LaneThreads::kPosted, LaneThreads::kOneByOne, LaneThreads::kEach}) {
    test::run_ranks(2, [&](Communicator& comm) {
      Executor executor(Clock::real(), comm.rank(), threads);
      std::vector<int> sum = {comm.rank(), 10};
      std::vector<int> seen;
      const auto call = [&](const Op&, int op) {
        return comm.all_reduce(std::span(sum).subspan(op == first ? 0 : 1, 1), ReduceOp::kSum);
      };
      executor.bind_call(OpKind::kDispatch, call);
      executor.bind_call(OpKind::kCombine, call);
      executor.bind(OpKind::kEncode, [&](const Op& op, int) {
        if (!op.after.empty()) seen = sum;
      });
      const Timeline times = executor.run(program);
      EXPECT_THAT(seen, ElementsAre(1, 20));
      EXPECT_LE(times.ops[0].end, times.ops[1].end);
      EXPECT_LE(times.ops[1].end, times.ops[3].start);
      if (threads == LaneThreads::kPosted) {
        EXPECT_GE(times.ops[0].end, times.ops[2].end);  // not before it was needed
      } else {
        EXPECT_LE(times.ops[0].end, times.ops[1].start);
      }
    });
  }
}

TEST(Executor, TellsTheFirstErrorAndCanGoOn) {
  Program program{.strategy = "test"};
  const int first = program.add({.kind = OpKind::kFetch, .lane = Lane::kDisk});
  program.add({.kind = OpKind::kEncode, .lane = Lane::kCompute, .after = {first}});
  program.add({.kind = OpKind::kPlan, .lane = Lane::kHost, .after = {first}});
  Executor executor;
  int encoded = 0;
  bool broken = true;
  executor.bind(OpKind::kFetch, [&](const Op&, int) {
    if (broken) throw Error(ErrorCode::kIo, "disk is gone");
  });
  executor.bind(OpKind::kEncode, [&](const Op&, int) { ++encoded; });
  expect_error(ErrorCode::kInvalid, {"plan"}, [&] { (void)executor.run(program); });
  executor.bind(OpKind::kPlan, [](const Op&, int) {});
  expect_error(ErrorCode::kIo, {"gone"}, [&] { (void)executor.run(program); });
  EXPECT_EQ(encoded, 0);
  broken = false;
  executor.run(program);
  EXPECT_EQ(encoded, 1);
}

}  // namespace
}  // namespace motley::moe
