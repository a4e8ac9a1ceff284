// Groups form first come, first served, shrink when few are left, and end alike for all who live.
#include "comm/group/matchmaker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/group/group_table.h"

namespace motley {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Report = GroupTable::Report;

constexpr TimePoint kNow{};

TimePoint at(double milliseconds) { return kNow + seconds(milliseconds / 1e3); }

TEST(Matchmaker, GroupsTheFirstWhoCome) {
  Matchmaker matchmaker;
  EXPECT_THAT(matchmaker.next(2, 4, kNow), IsEmpty());
  matchmaker.ready(3, kNow);
  EXPECT_THAT(matchmaker.next(2, 4, kNow), IsEmpty());
  matchmaker.ready(1, kNow);
  matchmaker.ready(0, kNow);
  EXPECT_THAT(matchmaker.next(2, 4, kNow), ElementsAre(1, 3));  // ascending, whoever came first
  EXPECT_THAT(matchmaker.next(2, 4, kNow), IsEmpty());
  matchmaker.ready(3, kNow);
  EXPECT_THAT(matchmaker.next(2, 4, kNow), ElementsAre(0, 3));
}

TEST(Matchmaker, ShrinksToThoseThatAreLeft) {
  Matchmaker matchmaker;
  matchmaker.ready(2, kNow);
  matchmaker.ready(0, kNow);
  EXPECT_THAT(matchmaker.next(4, 3, kNow), IsEmpty());  // one may still come
  EXPECT_THAT(matchmaker.next(4, 2, kNow), ElementsAre(0, 2));
  matchmaker.ready(2, kNow);
  EXPECT_THAT(matchmaker.next(4, 1, kNow), ElementsAre(2));
  EXPECT_THAT(matchmaker.next(4, 0, kNow), IsEmpty());
}

TEST(Matchmaker, NeverGroupsTheDead) {
  Matchmaker matchmaker;
  matchmaker.ready(0, kNow);
  matchmaker.ready(1, kNow);
  matchmaker.remove(0);
  matchmaker.remove(0);
  EXPECT_THAT(matchmaker.next(2, 3, kNow), IsEmpty());
  matchmaker.ready(2, kNow);
  EXPECT_THAT(matchmaker.next(2, 3, kNow), ElementsAre(1, 2));
}

// Four workers of equal speed: without the rule, 0 and 1 would never hear of 2 and 3.
TEST(Matchmaker, GivesNewPartnersToThoseWhoAreReadyTogetherAgain) {
  Matchmaker matchmaker;
  for (const double now : {0.0, 8.0}) {  // twice in a row is nothing yet
    for (const int rank : {0, 1}) matchmaker.ready(rank, at(now));
    EXPECT_THAT(matchmaker.next(2, 4, at(now)), ElementsAre(0, 1));
    for (const int rank : {2, 3}) matchmaker.ready(rank, at(now));
    EXPECT_THAT(matchmaker.next(2, 4, at(now)), ElementsAre(2, 3));
  }
  matchmaker.ready(0, at(16));
  matchmaker.ready(1, at(16));
  EXPECT_THAT(matchmaker.next(2, 4, at(16)), IsEmpty());
  EXPECT_EQ(matchmaker.hold_until(), at(17));  // an eighth of a step
  matchmaker.ready(2, at(16.5));
  EXPECT_THAT(matchmaker.next(2, 4, at(16.5)), ElementsAre(0, 2));
  matchmaker.ready(3, at(16.6));
  EXPECT_THAT(matchmaker.next(2, 4, at(16.6)), ElementsAre(1, 3));
  EXPECT_EQ(matchmaker.hold_until(), TimePoint::max());
}

// Two fast workers average with each other when nobody else comes in time.
TEST(Matchmaker, HoldsForHalfAStepAtMost) {
  Matchmaker matchmaker;
  double now = 0;
  for (const double held : {0, 0, 1, 2, 3, 4, 4, 4}) {
    matchmaker.ready(0, at(now));
    matchmaker.ready(1, at(now));
    if (held > 0) {
      EXPECT_THAT(matchmaker.next(2, 3, at(now + held - 0.1)), IsEmpty());
    }
    now += held;
    EXPECT_THAT(matchmaker.next(2, 3, at(now)), ElementsAre(0, 1));
    now += 8;
  }
  // Where there is nobody else, nothing is held.
  matchmaker.ready(1, at(now));
  matchmaker.ready(0, at(now));
  EXPECT_THAT(matchmaker.next(2, 2, at(now)), ElementsAre(0, 1));
}

TEST(GroupTable, CommitsWhenAllAreDone) {
  GroupTable table(5);
  const GroupTag tag = table.form({0, 3});
  EXPECT_TRUE(tag.from_controller());
  EXPECT_EQ(tag.epoch, 5u);
  EXPECT_EQ(table.report(3, Report::kDone), std::nullopt);
  EXPECT_FALSE(table.awaits(3, tag));
  EXPECT_TRUE(table.awaits(0, tag));
  const auto verdict = table.report(0, Report::kDone);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->kind, Verdict::kCommit);
  EXPECT_EQ(verdict->tag, tag);
  EXPECT_THAT(verdict->members, ElementsAre(0, 3));
  EXPECT_EQ(table.size(), 0u);
  EXPECT_LT(tag, table.form({0, 3}));  // tags ascend
}

TEST(GroupTable, RetriesWithTheSurvivorsIfAnyFailed) {
  GroupTable table(1);
  const GroupTag tag = table.form({0, 1, 2});
  EXPECT_EQ(table.report(0, Report::kDone), std::nullopt);  // it had the sum before rank 2 died
  EXPECT_EQ(table.report(1, Report::kFailed), std::nullopt);
  const auto retry = table.remove(2);
  ASSERT_TRUE(retry);
  EXPECT_EQ(retry->kind, Verdict::kRetry);
  EXPECT_EQ(retry->tag, (GroupTag{.id = tag.id, .epoch = 1, .attempt = 1}));
  EXPECT_THAT(retry->members, ElementsAre(0, 1));
  EXPECT_FALSE(table.awaits(0, tag));  // the first attempt is over
  EXPECT_EQ(table.report(0, Report::kFailed), std::nullopt);
  const auto solo = table.remove(1);
  ASSERT_TRUE(solo);
  EXPECT_EQ(solo->kind, Verdict::kSolo);
  EXPECT_THAT(solo->members, ElementsAre(0));
  EXPECT_EQ(table.size(), 0u);
}

TEST(GroupTable, CommitsWhatTheSurvivorsHaveWhoeverDied) {
  GroupTable table(1);
  table.form({0, 1, 2});
  table.report(0, Report::kDone);
  table.report(1, Report::kDone);
  const auto verdict = table.remove(2);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->kind, Verdict::kCommit);
  EXPECT_THAT(verdict->members, ElementsAre(0, 1));
}

TEST(GroupTable, ForgetsAGroupThatDiedOut) {
  GroupTable table(1);
  table.form({0, 1});
  EXPECT_EQ(table.remove(0), std::nullopt);
  EXPECT_EQ(table.remove(0), std::nullopt);
  EXPECT_EQ(table.remove(1), std::nullopt);
  EXPECT_EQ(table.size(), 0u);
}

}  // namespace
}  // namespace motley
