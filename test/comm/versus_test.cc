// What motley-perf --versus makes of times: who is best, ratios between turns that may be compared,
// goals, and peers that were not run. And that its children are run, limited and ended.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <vector>

#include "comm/cli/perf/child.h"
#include "comm/cli/perf/comparison.h"
#include "comm/cli/perf/goal.h"
#include "comm/cli/perf/machine.h"
#include "comm/cli/perf/model.h"

namespace motley::perf {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Optional;

enum Index : std::size_t { kPrivate, kAllocated, kPlainPeer, kKeptPeer };

const std::vector<Competitor>& competitors() {
  static const std::vector<Competitor> all = {
      {.name = "private", .ours = true, .buffers = Buffers::kPrivate},
      {.name = "allocated", .ours = true, .buffers = Buffers::kAllocated},
      {.name = "plain", .heap = Heap::kDefault},
      {.name = "kept", .heap = Heap::kKept}};
  return all;
}

constexpr Point kPoint{.ranks = 2, .bytes = 64 << 20};

TEST(Comparison, TakesTheMedianOfTurnsAndTheLeastOfPeers) {
  Comparison comparison(competitors());
  int round = 0;
  for (const double time : {3.0, 9.0, 4.0}) comparison.add(kPoint, kPlainPeer, {round++, time, 50});
  comparison.add(kPoint, kKeptPeer, {0, 5, 50});
  EXPECT_THAT(comparison.time(kPoint, kPlainPeer), Optional(4.0));
  EXPECT_THAT(comparison.best(kPoint), Optional(std::size_t{kPlainPeer}));
  EXPECT_THAT(comparison.best(kPoint, Comparison::Peers::kKeptHeap),
              Optional(std::size_t{kKeptPeer}));
  EXPECT_EQ(comparison.time(kPoint, kPrivate), std::nullopt);
}

// Turn 0 was taken with the processes far from each other on one side; turn 1 is the one to
// believe.
TEST(Comparison, ComparesTurnsWithLikeProbes) {
  Comparison comparison(competitors());
  comparison.add(kPoint, kPrivate, {0, 4, 240});
  comparison.add(kPoint, kPlainPeer, {0, 4, 50});
  comparison.add(kPoint, kPrivate, {1, 1, 52});
  comparison.add(kPoint, kPlainPeer, {1, 4, 50});
  const auto ratio = comparison.ratio(kPoint, kPrivate, kPlainPeer);
  ASSERT_TRUE(ratio);
  EXPECT_EQ(ratio->value, 0.25);
  EXPECT_TRUE(ratio->alike);

  const Point other{.ranks = 8};
  comparison.add(other, kPrivate, {0, 3, 240});
  comparison.add(other, kPlainPeer, {0, 2, 50});
  EXPECT_EQ(comparison.ratio(other, kPrivate, kPlainPeer)->value, 1.5);
  EXPECT_FALSE(comparison.ratio(other, kPrivate, kPlainPeer)->alike);
  EXPECT_EQ(comparison.ratio(other, kPrivate, kKeptPeer), std::nullopt);
}

// The peer lost its core in turn 0, where the processes were as near as ours; in turn 1 it did not.
TEST(Comparison, LeavesOutTurnsInWhichSomebodyWasHeldUp) {
  Comparison comparison(competitors());
  comparison.add(kPoint, kPrivate, {0, 2, 50});
  comparison.add(kPoint, kPlainPeer, {0, 4000, 50});
  EXPECT_EQ(comparison.ratio(kPoint, kPrivate, kPlainPeer)->value, 0.0005) << "all that is known";
  comparison.add(kPoint, kPrivate, {1, 3, 50});
  comparison.add(kPoint, kPlainPeer, {1, 4, 50});
  EXPECT_EQ(comparison.held_up(2, CallKind::kAllReduce, kPlainPeer, 0), 1);
  EXPECT_EQ(comparison.held_up(2, CallKind::kAllReduce, kPlainPeer, 1), 0);
  EXPECT_EQ(comparison.ratio(kPoint, kPrivate, kPlainPeer)->value, 0.75);
  EXPECT_THAT(comparison.time(kPoint, kPlainPeer), Optional(4.0));

  comparison.add(kPoint, kPlainPeer, {0, 8, 50});  // it ran once more
  EXPECT_EQ(comparison.held_up(2, CallKind::kAllReduce, kPlainPeer, 0), 0);
  EXPECT_EQ(comparison.ratio(kPoint, kPrivate, kPlainPeer)->value, 0.5) << "of 0.25 and 0.75";
  comparison.add(kPoint, kPlainPeer, {0, 6, 50});  // nor does a turn that was good count twice
  EXPECT_EQ(comparison.ratio(kPoint, kPrivate, kPlainPeer)->value, 0.5);
}

// Of a peer that was held up whenever it ran its samples say so; it is not beaten.
TEST(Comparison, SaysNothingOfWhoWasAlwaysHeldUp) {
  Comparison comparison(competitors());
  comparison.add(kPoint, kPrivate, {0, 2, 50});
  comparison.add(kPoint, kPlainPeer, {.round = 0, .time = 4000, .probe_ns = 50, .least = 3});
  comparison.add(kPoint, kKeptPeer, {0, 40, 50});
  EXPECT_THAT(comparison.best(kPoint), Optional(std::size_t{kPlainPeer}));
  EXPECT_EQ(comparison.ratio(kPoint, kPrivate, kPlainPeer), std::nullopt);
  const Verdict verdict = judge({.ranks = 2, .to = 1 << 30}, comparison);
  EXPECT_EQ(verdict.points, 1);
  EXPECT_EQ(verdict.met, 0);
  EXPECT_EQ(verdict.unknown, 1);
}

Goal half_of(Goal::Against against) {
  return {.ranks = 2, .from = 1, .to = 1 << 30, .against = against, .at_most = 0.5};
}

TEST(Goals, AreMetAgainstTheRightPeers) {
  Comparison comparison(competitors());
  comparison.add(kPoint, kPrivate, {0, 1, 50});
  comparison.add(kPoint, kPlainPeer, {0, 10, 50});
  comparison.add(kPoint, kKeptPeer, {0, 1.5, 50});
  EXPECT_EQ(judge(half_of(Goal::Against::kDefaultHeap), comparison).met, 1);
  const Verdict kept = judge(half_of(Goal::Against::kKeptHeap), comparison);
  EXPECT_EQ(kept.points, 1);
  EXPECT_EQ(kept.met, 0);
  EXPECT_NEAR(kept.worst, 1 / 1.5, 1e-12);
  EXPECT_EQ(kept.worst_point, kPoint);
  EXPECT_EQ(judge(half_of(Goal::Against::kBest), comparison).met, 0);
  EXPECT_EQ(judge(half_of(Goal::Against::kMicroseconds), comparison).met, 0);
}

TEST(Goals, AreNotMetWhereAPeerWasNotRun) {
  Comparison comparison(competitors());
  comparison.add(kPoint, kPrivate, {0, 1, 50});
  comparison.add(kPoint, kPlainPeer, {0, 10, 50});
  const Verdict verdict = judge(half_of(Goal::Against::kBest), comparison);
  EXPECT_EQ(verdict.points, 1);
  EXPECT_EQ(verdict.met, 0);
  EXPECT_THAT(verdict.open, ElementsAre("kept"));
}

TEST(Goals, MeasureAllocatedBuffersAgainstMemory) {
  Comparison comparison(competitors());
  comparison.add(kPoint, kAllocated, {0, 4e-3, 50});
  Goal goal = half_of(Goal::Against::kLimit);
  goal.buffers = Buffers::kAllocated;
  goal.at_most = 1.5;
  EXPECT_EQ(judge(goal, comparison).met, 0) << "no limit was measured";
  comparison.add_limit(2, 64 << 20, 1, 3e-3);
  EXPECT_EQ(judge(goal, comparison).met, 0) << "in another turn";
  comparison.add_limit(2, 64 << 20, 0, 3e-3);
  EXPECT_EQ(judge(goal, comparison).met, 1);
  EXPECT_EQ(judge(half_of(Goal::Against::kLimit), comparison).points, 0) << "private: not run";
}

// Memory was measured slower than our call was.
TEST(Goals, AreNotMetByALimitThatIsNoise) {
  Comparison comparison(competitors());
  comparison.add(kPoint, kAllocated, {0, 4e-3, 50});
  comparison.add_limit(2, 64 << 20, 0, 5e-3);
  Goal goal = half_of(Goal::Against::kLimit);
  goal.buffers = Buffers::kAllocated;
  goal.at_most = 1 / 0.7;
  EXPECT_EQ(comparison.share(kPoint)->value, std::nullopt);
  EXPECT_EQ(judge(goal, comparison).met, 0);
  EXPECT_EQ(judge(goal, comparison).unknown, 1);
  comparison.add_limit(2, 64 << 20, 0, 2e-3);  // once more in the same turn: memory is faster
  EXPECT_EQ(comparison.share(kPoint)->noise, 1);
  EXPECT_NEAR(*comparison.share(kPoint)->value, 0.5, 1e-12);
  EXPECT_EQ(judge(goal, comparison).met, 0);
}

// ring and tree take times so like each other that their order is none; direct is slow, and the
// model takes it for the fastest.
TEST(Model, IsJudgedByPairsWhoseTimesDiffer) {
  const std::vector<Priced> wrong = {{"ring", {1.00}, 3}, {"tree", {1.05}, 2}, {"direct", {4}, 1}};
  const Agreement judged = agreement(wrong, 0.1);
  EXPECT_EQ(judged.pairs, 2);
  EXPECT_EQ(judged.right, 0);
  EXPECT_FALSE(judged.holds());
  EXPECT_FALSE(judged.strictly);
  EXPECT_EQ(judged.regret, 4);

  const std::vector<Priced> right = {{"ring", {1.00}, 2}, {"tree", {1.05}, 1}, {"direct", {4}, 3}};
  EXPECT_TRUE(agreement(right, 0.1).holds());
  EXPECT_FALSE(agreement(right, 0.1).strictly);
  EXPECT_FALSE(agreement(right, 0.01).holds());
  EXPECT_NEAR(agreement(right, 0.1).regret, 1.05, 1e-12);
  EXPECT_THAT(errors({{"ring", {4}, 3}, {"tree", {1}, 1.5}}), ElementsAre(0.25, 0.5));
}

// The machine was slow in round 2 for both; in round 4 the ring alone was held up.
TEST(Model, TakesForFasterOnlyWhatIsSoInMostRounds) {
  const Priced ring{"ring", {1, 10, 1, 3}, 1};
  EXPECT_TRUE(surely_faster(ring, {"tree", {2, 20, 2, 2}, 1}, 0.1));
  EXPECT_FALSE(surely_faster(ring, {"tree", {2, 9, 2, 2}, 1}, 0.1));
  EXPECT_FALSE(surely_faster({"tree", {2, 9, 2, 2}, 1}, ring, 0.1));
}

TEST(Children, AreRunAtOnceAndToldApartByHowTheyEnd) {
  const auto shell = [](const std::string& script) { return Command{{"/bin/sh", "-c", script}}; };
  EXPECT_THAT(run_all({shell("exit 0"), shell("exit 0")}, seconds(30)), IsEmpty());
  EXPECT_THAT(run_all({shell("exit 0"), shell("echo why; exit 3")}, seconds(30)),
              AllOf(HasSubstr("ended with 3"), HasSubstr("why")));
  EXPECT_THAT(run_all({shell("kill -9 $$")}, seconds(30)), HasSubstr("signal 9"));
  EXPECT_THAT(run_all({{{"no-such-program"}}}, seconds(30)), HasSubstr("127"));
  EXPECT_THAT(run_all({{{"/bin/sh", "-c", "test $A = b"}, {{"A", "b"}}}}, seconds(30)), IsEmpty());
}

// Nobody is left who could write to the pipe, so that reading it ends.
TEST(Children, AreKilledWithAllThatTheyStartedWhenTheyTakeTooLong) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_THAT(run_all({{{"/bin/sh", "-c", "sleep 100 & sleep 100"}}}, seconds(0.1)),
              HasSubstr("killed"));
  close(ends[1]);
  pollfd item{.fd = ends[0], .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&item, 1, 10'000), 1) << "a child of the child lives";
  close(ends[0]);
}

TEST(Machine, TellsHowFastItsCoresTalkAndCopy) {
  if (usable_cores() < 2) GTEST_SKIP() << "one core";
  EXPECT_GT(exchange_ns(), 1);
  EXPECT_GT(copy_bandwidth(2, 1 << 20), 1e6);
}

}  // namespace
}  // namespace motley::perf
