// Groups form first come, first served, shrink when few are left, and end alike for all who live.
#include "comm/group/matchmaker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/group/group_table.h"
#include "comm/group/patience.h"
#include "comm/group/step_estimate.h"

namespace motley {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr TimePoint kNow{};

TimePoint at(double milliseconds) { return kNow + seconds(milliseconds / 1e3); }

// Four ranks in pairs, unless said otherwise.
struct Matches {
  explicit Matches(const Grouping& grouping = {.group_size = 2}, int size = 4) : matchmaker(size) {
    matchmaker.use(grouping);
  }
  void ready(const std::vector<int>& ranks, double milliseconds = 0) {
    for (const int rank : ranks) matchmaker.ready(rank, {}, at(milliseconds));
  }
  std::vector<int> next(double milliseconds = 0) { return matchmaker.next(at(milliseconds)); }
  Matchmaker matchmaker;
};

TEST(Matchmaker, GroupsTheFirstWhoCome) {
  Matches m;
  EXPECT_THAT(m.next(), IsEmpty());
  m.ready({3});
  EXPECT_THAT(m.next(), IsEmpty());
  m.ready({1, 0});
  EXPECT_THAT(m.next(), ElementsAre(1, 3));  // ascending, whoever came first
  EXPECT_THAT(m.next(), IsEmpty());
  m.ready({3});
  EXPECT_THAT(m.next(), ElementsAre(0, 3));
}

// Partial scenarios 5 and 45: fewer are left than a group wants.
TEST(Matchmaker, PartialScenario5And45ShrinksToThoseThatAreLeft) {
  Matches m({.group_size = 4});
  m.matchmaker.retire(3);
  m.ready({2, 0});
  EXPECT_THAT(m.next(), IsEmpty());  // one may still come
  m.matchmaker.retire(1);
  EXPECT_THAT(m.next(), ElementsAre(0, 2));
  m.matchmaker.retire(0);
  m.ready({2});
  EXPECT_THAT(m.next(), ElementsAre(2));
  m.matchmaker.retire(2);
  EXPECT_THAT(m.next(), IsEmpty());
}

// Partial scenario 1: fewer are left than a group wants; then others come, and it is as before.
TEST(Matchmaker, PartialScenario1GrowsAgainWhenOthersCome) {
  Matches m({.group_size = 3});
  m.matchmaker.retire(2);
  m.matchmaker.retire(3);
  m.ready({0, 1});
  EXPECT_THAT(m.next(), ElementsAre(0, 1));
  m.matchmaker.add(2);
  m.matchmaker.add(3);
  m.ready({0, 1}, 8);
  EXPECT_THAT(m.next(8), IsEmpty());
  m.ready({3}, 9);
  EXPECT_THAT(m.next(9), ElementsAre(0, 1, 3));
}

// Partial scenario 7: 64 workers want groups of 60, and 27 have run out of data.
TEST(Matchmaker, PartialScenario7GoesOnWhenManyHaveRunOut) {
  Matches m({.group_size = 60}, 64);
  for (int rank = 0; rank < 27; ++rank) m.matchmaker.retire(rank);
  for (int rank = 27; rank < 63; ++rank) m.ready({rank});
  EXPECT_THAT(m.next(), IsEmpty());
  m.ready({63});
  EXPECT_THAT(m.next(), SizeIs(37));
}

// Partial scenario 15.
TEST(Matchmaker, PartialScenario15NeverGroupsTheDead) {
  Matches m;
  m.ready({0, 1});
  m.matchmaker.retire(0);
  m.matchmaker.retire(0);
  EXPECT_THAT(m.next(), IsEmpty());
  m.ready({2});
  EXPECT_THAT(m.next(), ElementsAre(1, 2));
}

TEST(Matchmaker, TakesPartnersOfOtherComponentsFirst) {
  Matches m({.group_size = 3}, 6);
  m.ready({0, 1, 2});
  EXPECT_THAT(m.next(), ElementsAre(0, 1, 2));
  m.ready({0, 1, 2, 3, 4});
  EXPECT_THAT(m.next(), ElementsAre(0, 3, 4));  // though 1 and 2 came before them
  Matches fifo({.group_size = 3, .guard = Guard::kNone}, 6);
  fifo.ready({0, 1, 2});
  EXPECT_THAT(fifo.next(), ElementsAre(0, 1, 2));
  fifo.ready({0, 1, 2, 3, 4});
  EXPECT_THAT(fifo.next(), ElementsAre(0, 1, 2));
}

// Steps of 8 ms in pairs: by the second round the graph could be connected, so the head is held
// until one comes from elsewhere.
void step_in_pairs(Matches& m) {
  for (const std::vector<int>& pair : {std::vector{0, 1}, {2, 3}}) {
    m.ready(pair, 0);
    EXPECT_EQ(m.next(0), pair);
  }
  for (const std::vector<int>& pair : {std::vector{0, 1}, {2, 3}}) {
    m.ready(pair, 8);  // not due yet: three joins of four ranks are
    EXPECT_EQ(m.next(8), pair);
  }
}

TEST(Matchmaker, HoldsThoseWhoWereTogetherForOneFromElsewhere) {
  Matches m;
  step_in_pairs(m);
  m.ready({0, 1}, 16);
  EXPECT_THAT(m.next(16), IsEmpty());
  EXPECT_EQ(m.matchmaker.hold_until(), at(20));  // half a step
  m.ready({2}, 16.5);
  EXPECT_THAT(m.next(16.5), ElementsAre(0, 2));
  m.ready({3}, 16.6);
  EXPECT_THAT(m.next(16.6), ElementsAre(1, 3));
  EXPECT_EQ(m.matchmaker.hold_until(), TimePoint::max());
  EXPECT_EQ(m.matchmaker.holds(), 1u);
  EXPECT_EQ(m.matchmaker.holds_in_vain(), 0u);
}

// Whoever is expected may be late: the hold ends, and the next is half as long.
TEST(Matchmaker, HoldsForHalfAStepAtMostAndLessAfterThat) {
  Matches m;
  step_in_pairs(m);
  m.ready({0, 1}, 16);
  EXPECT_THAT(m.next(16), IsEmpty());
  EXPECT_THAT(m.next(19.9), IsEmpty());
  EXPECT_THAT(m.next(20), ElementsAre(0, 1));
  EXPECT_EQ(m.matchmaker.holds_in_vain(), 1u);
  m.matchmaker.retire(3);
  m.ready({0, 1}, 20);  // 2 is overdue by more than half a step: not expected any more
  EXPECT_THAT(m.next(20.1), ElementsAre(0, 1));
}

TEST(Matchmaker, NeverWaitsForASlowWorker) {
  Matches m({.group_size = 2}, 3);
  m.ready({0, 2}, 0);
  EXPECT_THAT(m.next(0), ElementsAre(0, 2));
  m.ready({1}, 0.1);
  m.ready({2}, 100);  // its step is 100 ms
  EXPECT_THAT(m.next(100), ElementsAre(1, 2));
  m.ready({0, 1}, 104);
  EXPECT_THAT(m.next(104), ElementsAre(0, 1));
  for (double now = 108; now < 190; now += 4) {  // 2 is expected at 200
    m.ready({0, 1}, now);
    EXPECT_THAT(m.next(now), ElementsAre(0, 1)) << now;
  }
  EXPECT_EQ(m.matchmaker.holds(), 0u);
}

TEST(Matchmaker, LingersForALargerGroupWhereAsked) {
  Matches m({.group_size = 2, .largest_group = 3, .linger = 0.25}, 5);
  m.ready({0, 1, 2}, 0);
  EXPECT_THAT(m.next(0), ElementsAre(0, 1, 2));  // three at once need no time
  m.ready({0, 1}, 8);
  EXPECT_THAT(m.next(8), IsEmpty());
  EXPECT_EQ(m.matchmaker.hold_until(), at(10));
  m.ready({3}, 9);
  EXPECT_THAT(m.next(9), ElementsAre(0, 1, 3));
  m.ready({2, 4}, 9);
  EXPECT_THAT(m.next(9), IsEmpty());  // the step of 2 was 9 ms
  EXPECT_THAT(m.next(11.2), IsEmpty());
  EXPECT_THAT(m.next(11.3), ElementsAre(2, 4));
}

// Ranks that give nothing are extra members: nobody waits for them, and they for anybody who gives.
TEST(Matchmaker, AddsThoseWhoGiveNothingToTheNextGroup) {
  Matches m;
  m.matchmaker.ready(3, {.gives = false}, at(0));
  EXPECT_THAT(m.next(), IsEmpty());
  m.ready({0});
  EXPECT_THAT(m.next(), IsEmpty());
  m.ready({1});
  EXPECT_THAT(m.next(), ElementsAre(0, 1, 3));
  m.matchmaker.ready(3, {.gives = false}, at(1));
  m.matchmaker.ready(2, {.gives = false}, at(1));
  for (const int rank : {0, 1}) m.matchmaker.retire(rank);
  EXPECT_THAT(m.next(1), ElementsAre(3));  // nobody is left to take from
  EXPECT_THAT(m.next(1), ElementsAre(2));
  EXPECT_THAT(m.next(1), IsEmpty());
}

TEST(SyncGraph, CountsComponentsOfThoseWhoTrain) {
  SyncGraph graph(5);
  for (int rank = 0; rank < 5; ++rank) graph.add(rank);
  EXPECT_EQ(graph.components(), 5);
  graph.join({0, 1, 2});
  EXPECT_EQ(graph.components(), 3);
  EXPECT_EQ(graph.component(0), graph.component(2));
  graph.remove(4);
  EXPECT_EQ(graph.components(), 2);
  EXPECT_FALSE(graph.is_due());
  graph.join({0, 1});
  EXPECT_TRUE(graph.is_due());  // three joins of four ranks, and 3 is apart
  graph.join({1, 2});
  graph.join({0, 2});
  EXPECT_EQ(graph.spans_disconnected(), 0u);  // 3 has not had its turn
  graph.remove(1);
  graph.join({0, 3});  // that ends the span: all are on their own again
  EXPECT_EQ(graph.components(), 3);
  EXPECT_NE(graph.component(0), graph.component(3));
  graph.add(1);
  EXPECT_EQ(graph.components(), 4);
}

TEST(GroupTable, CommitsWhenAllAreDone) {
  GroupTable table(5);
  const GroupTag tag = table.form({0, 3});
  EXPECT_TRUE(tag.from_controller());
  EXPECT_EQ(tag.epoch, 5u);
  EXPECT_EQ(table.done(3), std::nullopt);
  EXPECT_FALSE(table.awaits(3, tag));
  EXPECT_TRUE(table.keeps_result(3));
  EXPECT_TRUE(table.awaits(0, tag));
  const auto verdict = table.done(0);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->kind, Verdict::kCommit);
  EXPECT_EQ(verdict->tag, tag);
  EXPECT_THAT(verdict->members, ElementsAre(0, 3));
  EXPECT_EQ(table.size(), 0u);
  EXPECT_LT(tag, table.form({0, 3}));  // tags ascend
  EXPECT_EQ(table.counts().committed, 1u);
}

TEST(GroupTable, RetriesWithTheSurvivorsIfAllOfThemFailed) {
  GroupTable table(1);
  const GroupTag tag = table.form({0, 1, 2});
  EXPECT_EQ(table.failed(0, AbortReason::kPeerLost), std::nullopt);
  EXPECT_EQ(table.failed(1, AbortReason::kPeerLost), std::nullopt);
  const auto retry = table.remove(2, AbortReason::kDied);
  ASSERT_TRUE(retry);
  EXPECT_EQ(retry->kind, Verdict::kRetry);
  EXPECT_EQ(retry->tag, (GroupTag{.id = tag.id, .epoch = 1, .attempt = 1}));
  EXPECT_THAT(retry->members, ElementsAre(0, 1));
  EXPECT_TRUE(table.awaits(0, retry->tag));
  EXPECT_EQ(table.failed(0, AbortReason::kTimeout), std::nullopt);
  const auto solo = table.remove(1, AbortReason::kWithdrew);
  ASSERT_TRUE(solo);
  EXPECT_EQ(solo->kind, Verdict::kSolo);
  EXPECT_THAT(solo->members, ElementsAre(0));
  EXPECT_EQ(table.size(), 0u);
  // What came first in each attempt.
  EXPECT_THAT(table.counts().aborts, ElementsAre(0, 0, 1, 1, 0, 0));
}

TEST(GroupTable, CommitsWhatTheSurvivorsHaveWhoeverDied) {
  GroupTable table(1);
  table.form({0, 1, 2});
  table.done(0);
  table.done(1);
  const auto verdict = table.remove(2, AbortReason::kDied);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->kind, Verdict::kCommit);
  EXPECT_THAT(verdict->members, ElementsAre(0, 1));
}

// Rank 0 has the average, 1 and 2 have not: once it asks for its next group, it hands it on.
TEST(GroupTable, HealsThoseThatFailedByOneThatIsDone) {
  GroupTable table(1);
  const GroupTag tag = table.form({0, 1, 2, 3});
  EXPECT_EQ(table.done(0), std::nullopt);
  EXPECT_EQ(table.failed(1, AbortReason::kPeerLost), std::nullopt);
  EXPECT_EQ(table.failed(2, AbortReason::kPeerLost), std::nullopt);
  EXPECT_EQ(table.remove(3, AbortReason::kDied), std::nullopt);  // 0 is making its next step
  auto heal = table.asks(0);
  ASSERT_TRUE(heal);
  EXPECT_EQ(heal->kind, Verdict::kHeal);
  EXPECT_EQ(heal->donor, 0);
  EXPECT_EQ(heal->tag.id, tag.id);
  EXPECT_EQ(heal->tag.attempt, 1u);
  EXPECT_THAT(heal->members, ElementsAre(0, 1, 2));
  // One gets it, the other fails, and so does the donor, which still has it.
  EXPECT_EQ(table.done(1), std::nullopt);
  EXPECT_EQ(table.failed(0, AbortReason::kTimeout), std::nullopt);
  EXPECT_TRUE(table.keeps_result(0));
  EXPECT_EQ(table.failed(2, AbortReason::kTimeout), std::nullopt);
  heal = table.asks(1);  // any that has it will do
  ASSERT_TRUE(heal);
  EXPECT_EQ(heal->donor, 1);
  EXPECT_THAT(heal->members, ElementsAre(1, 2));
  table.done(1);
  EXPECT_EQ(table.done(2)->kind, Verdict::kCommit);
  EXPECT_EQ(table.size(), 0u);
  EXPECT_EQ(table.counts().healed, 2u);
}

// A donor that withdraws keeps what it has, and hands it on when it asks again.
TEST(GroupTable, KeepsADonorThatWithdrew) {
  GroupTable table(1);
  table.form({0, 1});
  table.done(0);
  table.failed(1, AbortReason::kTimeout);
  ASSERT_TRUE(table.asks(0));
  EXPECT_EQ(table.withdraw(0), std::nullopt);  // before it has begun to hand it on
  EXPECT_TRUE(table.keeps_result(0));
  EXPECT_EQ(table.failed(1, AbortReason::kTimeout), std::nullopt);  // though 0 lives, it asks not
  const auto heal = table.asks(0);
  ASSERT_TRUE(heal);
  EXPECT_EQ(heal->kind, Verdict::kHeal);
  EXPECT_THAT(heal->members, ElementsAre(0, 1));
}

TEST(GroupTable, AveragesAgainWhenAllThatWereDoneHaveDied) {
  GroupTable table(1);
  table.form({0, 1, 2});
  table.done(0);
  table.failed(1, AbortReason::kPeerLost);
  EXPECT_EQ(table.failed(2, AbortReason::kPeerLost), std::nullopt);
  const auto retry = table.remove(0, AbortReason::kDied);
  ASSERT_TRUE(retry);
  EXPECT_EQ(retry->kind, Verdict::kRetry);
  EXPECT_THAT(retry->members, ElementsAre(1, 2));
}

TEST(GroupTable, ForgetsAGroupThatDiedOut) {
  GroupTable table(1);
  table.form({0, 1});
  EXPECT_EQ(table.remove(0, AbortReason::kDied), std::nullopt);
  EXPECT_EQ(table.remove(0, AbortReason::kDied), std::nullopt);
  EXPECT_EQ(table.remove(1, AbortReason::kDied), std::nullopt);
  EXPECT_EQ(table.size(), 0u);
}

TEST(GroupTable, AdoptsWhatAnotherControllerFormed) {
  GroupTable table(1);
  const GroupTag old = table.form({0, 1});
  GroupTable next(1);
  next.begin_epoch(1 << 16 | 2);
  EXPECT_TRUE(next.adopt(old, {0, 1}));
  EXPECT_FALSE(next.adopt(old, {0, 1}));
  EXPECT_TRUE(next.awaits(1, old));
  next.done(0);
  EXPECT_EQ(next.done(1)->kind, Verdict::kCommit);
  const GroupTag tag = next.form({0, 1});
  EXPECT_LT(old, tag);  // though both are the first of their controllers
  EXPECT_FALSE(next.adopt({.id = old.id + 1, .epoch = 1}, {1, 2}));  // 1 is in another group
}

// Partial scenario 22: no limit is a guess. It follows what averages took, of groups of the same
// size; and should all have become slower at once, attempts after the first find out.
TEST(Patience, PartialScenario22FollowsWhatAveragesTook) {
  Patience patience(seconds(0.2));
  for (int i = 0; i < 7; ++i) patience.took(3, seconds(1));
  EXPECT_EQ(patience.limit(3, 0), std::nullopt);  // too few are known
  patience.took(3, seconds(1));
  EXPECT_EQ(patience.limit(3, 0), seconds(1));
  EXPECT_EQ(patience.limit(2, 0), std::nullopt);
  for (int i = 0; i < 8; ++i) patience.took(2, seconds(0.001));
  EXPECT_EQ(patience.limit(2, 0), seconds(0.2)) << "the floor";
  EXPECT_EQ(patience.limit(2, 3), seconds(1.6));
  // One in eight took a hundred times as long: medians do not mind.
  for (int i = 0; i < 32; ++i) patience.took(4, seconds(i % 8 == 0 ? 100 : 1 + 0.1 * (i % 3)));
  EXPECT_NEAR(to_seconds(*patience.limit(4, 0)), 1.6, 0.11);
  // All have become slower: half of those kept are enough.
  for (int i = 0; i < 17; ++i) patience.took(4, seconds(10));
  EXPECT_GE(*patience.limit(4, 0), seconds(10));
}

TEST(StepEstimate, TellsNothingOfStepsThatAreUnlike) {
  StepEstimate estimate;
  EXPECT_EQ(estimate.next(), std::nullopt);
  estimate.took(seconds(1));
  EXPECT_EQ(estimate.next(), seconds(1));
  for (int i = 0; i < 20; ++i) {
    estimate.took(seconds(i % 2 == 0 ? 0.95 : 1.05));
    ASSERT_TRUE(estimate.next()) << i;
    EXPECT_NEAR(to_seconds(*estimate.next()), 1, 0.05);
  }
  estimate.took(seconds(4));  // one that is late is not the last, as a rule
  EXPECT_EQ(estimate.next(), std::nullopt);
  int silent = 0;
  for (; silent < 40 && !estimate.next(); ++silent) estimate.took(seconds(1));
  EXPECT_GT(silent, 5);
  EXPECT_LT(silent, 20);
}

}  // namespace
}  // namespace motley
