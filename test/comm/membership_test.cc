// Scenario 30: what elastic trainers met. A member that is gone does not hold up the next match; a
// silent one is given up in time; of two halves that lost each other one goes on; a newcomer leaves
// a group under way alone. The controller as a state machine, in its own time. Part of scenario 32:
// groups of all subsets of the ranks leave nothing behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <set>

#include "comm/control/controller_core.h"

namespace motley {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr Duration kLease = seconds(1);
constexpr Duration kHeartbeat = seconds(0.2);

class Membership : public testing::Test {
 protected:
  static constexpr int kSize = 4;

  void join(const std::vector<int>& ranks) {
    for (const int rank : ranks)
      say(rank, {.type = MessageType::kHello, .rank = rank, .count = kSize});
    take();
  }
  void say(int rank, Message message) {
    message.epoch = 1;
    core.on_message("id" + std::to_string(rank), message, now);
  }
  void ready(int rank, int group_size) { ready(rank, {.grouping = {.group_size = group_size}}); }
  void ready(int rank, const ReadyNote& note) {
    say(rank, {.type = MessageType::kReady, .seq = ++seq, .value = encode(note)});
  }
  void fail(int rank, const GroupTag& tag, int suspect, int group_size) {
    const ReadyNote note{.grouping = {.group_size = group_size}};
    say(rank, {.type = MessageType::kFail,
               .seq = ++seq,
               .rank = suspect,
               .tag = tag,
               .value = encode(note)});
  }
  void done(int rank, const GroupTag& tag) {
    say(rank, {.type = MessageType::kDone, .seq = ++seq, .tag = tag});
  }
  // All that wait are `ranks`: they are in one group, and complete it.
  void average(const std::vector<int>& ranks) {
    const auto told = take(MessageType::kGroup);
    EXPECT_THAT(told, SizeIs(ranks.size()));
    for (const auto& [rank, group] : told) {
      EXPECT_EQ(group.ranks, ranks);
      done(rank, group.tag);
    }
    take();
  }
  // Time passes with signs of life of `ranks` alone.
  void pass(Duration time, const std::vector<int>& ranks) {
    for (const TimePoint end = now + time; now < end;) {
      now += std::min(kHeartbeat, end - now);
      for (const int rank : ranks) say(rank, {.type = MessageType::kHeartbeat});
      core.on_time(now);
    }
  }
  // What was said to whom since the last call, but for signs of life.
  std::vector<std::pair<int, Message>> take() {
    std::vector<std::pair<int, Message>> out;
    for (auto& output : core.take_output()) {
      if (output.message.type == MessageType::kHeartbeat) continue;
      out.emplace_back(output.to.back() - '0', std::move(output.message));
    }
    return out;
  }
  // Of those, the ones of a type.
  std::vector<std::pair<int, Message>> take(MessageType type) {
    auto all = take();
    std::erase_if(all, [type](const auto& it) { return it.second.type != type; });
    return all;
  }

  TimePoint now{seconds(100)};
  ControllerCore core{{.size = kSize, .token = {}, .lease = kLease}, now};
  std::uint64_t seq = 0;
};

// Rank 2 is ready and then gone: those who come after it get a group without it.
TEST_F(Membership, Scenario30AStaleMemberDoesNotBlockTheNextMatch) {
  join({0, 1, 2, 3});
  ready(2, 3);
  pass(2 * kLease, {0, 1, 3});
  EXPECT_TRUE(core.is_lost(2));
  take();
  ready(0, 3);
  ready(3, 3);
  EXPECT_THAT(take(MessageType::kGroup), IsEmpty());
  ready(1, 3);
  const auto told = take(MessageType::kGroup);
  ASSERT_THAT(told, SizeIs(3));
  for (const auto& [rank, group] : told) EXPECT_THAT(group.ranks, ElementsAre(0, 1, 3));
}

// Everybody learns of a silent rank once its lease is over, an eighth later at most, and of no
// other.
TEST_F(Membership, PartialScenario14AndScenario30ASilentRankIsGivenUpInTime) {
  join({0, 1, 2, 3});
  pass(kLease - kHeartbeat, {0, 1, 2});
  EXPECT_THAT(take(MessageType::kLost), IsEmpty());
  pass(kHeartbeat + kLease / 8, {0, 1, 2});
  std::set<int> told;
  for (const auto& [rank, loss] : take(MessageType::kLost)) {
    told.insert(rank);
    EXPECT_EQ(loss.rank, 3);
  }
  EXPECT_THAT(told, ElementsAre(0, 1, 2));
}

// A group of four falls into halves that both live, but only one is heard. That one goes on; what
// the other says later of the old group is refused, so no model is kept by both.
TEST_F(Membership, Scenario30OnlyOneHalfGoesOn) {
  join({0, 1, 2, 3});
  for (int rank = 0; rank < kSize; ++rank) ready(rank, 4);
  const GroupTag tag = take(MessageType::kGroup).at(0).second.tag;
  fail(0, tag, 2, 4);
  fail(1, tag, 3, 4);
  pass(2 * kLease, {0, 1});
  const auto again = take(MessageType::kGroup);
  ASSERT_THAT(again, SizeIs(2));
  for (const auto& [rank, group] : again) {
    EXPECT_LT(rank, 2);
    EXPECT_THAT(group.ranks, ElementsAre(0, 1));
    EXPECT_EQ(group.tag.attempt, tag.attempt + 1);
  }
  for (const int rank : {2, 3}) {
    done(rank, tag);
    ready(rank, 2);
    const auto answers = take();
    ASSERT_THAT(answers, SizeIs(2));
    for (const auto& [to, answer] : answers) EXPECT_EQ(answer.type, MessageType::kFenced);
  }
  done(0, again[0].second.tag);
  done(1, again[0].second.tag);
  EXPECT_THAT(take(MessageType::kCommit), SizeIs(2));
  EXPECT_EQ(core.groups().size(), 0u);
}

// Rank 3 comes while the others average in pairs: no group under way changes, and its own is one of
// those that follow.
TEST_F(Membership, Scenario30ANewcomerLeavesARunningGroupAlone) {
  join({0, 1, 2});
  ready(0, 2);
  ready(1, 2);
  const GroupTag tag = take(MessageType::kGroup).at(0).second.tag;
  join({3});
  ready(3, 2);
  EXPECT_THAT(take(), IsEmpty());
  EXPECT_TRUE(core.groups().awaits(0, tag));
  done(0, tag);
  done(1, tag);
  const auto committed = take();
  ASSERT_THAT(committed, SizeIs(2));
  for (const auto& [rank, message] : committed) EXPECT_EQ(message.type, MessageType::kCommit);
  ready(2, 2);
  const auto next = take(MessageType::kGroup);
  ASSERT_THAT(next, SizeIs(2));
  EXPECT_THAT(next[0].second.ranks, ElementsAre(2, 3));
}

// Ranks that are there, and do not average, hold the others up for two leases, once; when they
// come, they count.
TEST_F(Membership, PartialScenario3RanksThatNeverAverageHoldNobodyUp) {
  join({0, 1, 2, 3});
  ready(0, 3);
  pass(kLease, {0, 1, 2, 3});
  ready(1, 3);
  pass(kLease - kHeartbeat, {0, 1, 2, 3});
  EXPECT_THAT(take(MessageType::kGroup), IsEmpty());  // they may still come
  pass(kHeartbeat + kLease / 8, {0, 1, 2, 3});
  average({0, 1});
  for (const int rank : {0, 1}) ready(rank, 3);
  average({0, 1});
  ready(2, 3);
  ready(0, 3);
  EXPECT_THAT(take(MessageType::kGroup), IsEmpty());  // now there are three to wait for
  ready(1, 3);
  average({0, 1, 2});
  for (const int rank : {0, 1, 2}) core.report_lost(rank, "the test ended it");
  take();
  ready(3, 3);
  pass(kHeartbeat, {3});  // for more to come to this other training
  EXPECT_THAT(take(MessageType::kSolo), SizeIs(1));
}

// Of those that come first all die: whoever comes after that waits for the rest anew.
TEST_F(Membership, PartialScenario3TheNextToComeWaitsForTheRestAgain) {
  join({0, 1, 2, 3});
  ready(2, 3);
  core.report_lost(2, "the test ended it");
  pass(3 * kLease, {0, 1, 3});
  ready(0, 3);
  pass(2 * kLease - kHeartbeat, {0, 1, 3});
  EXPECT_THAT(take(MessageType::kSolo), IsEmpty());
  pass(2 * kHeartbeat, {0, 1, 3});
  EXPECT_THAT(take(MessageType::kSolo), SizeIs(1));
}

// A joiner that has the model of the others, and makes no step with it, stalls nobody; from when it
// announces one, it counts.
TEST_F(Membership, PartialScenario3AJoinerThatStallsStallsNobody) {
  join({0, 1, 2, 3});
  ready(3, {.grouping = {.group_size = 4}, .gives = false});
  for (const int rank : {0, 1, 2}) ready(rank, 4);
  average({0, 1, 2, 3});
  for (int step = 0; step < 3; ++step) {
    for (const int rank : {0, 1, 2}) ready(rank, 4);
    average({0, 1, 2});  // at once
  }
  EXPECT_EQ(core.metrics().training, 3);
  ready(3, {.grouping = {.group_size = 4}, .eta = seconds(0.1)});
  for (const int rank : {0, 1, 2}) ready(rank, 4);
  EXPECT_THAT(take(MessageType::kGroup), IsEmpty());
  pass(kHeartbeat, {0, 1, 2, 3});
  EXPECT_THAT(take(MessageType::kGroup), SizeIs(4));
}

// Partial scenarios 16 and 31: a controller is started in the place of one that died. It asks who
// is there, counts on from their epoch, hears how their group ended, and takes no word of the old
// epoch.
TEST_F(Membership, PartialScenario16And31ARestartedControllerIsToldWhatItMustKnow) {
  join({0, 1, 2, 3});
  for (int rank = 0; rank < kSize; ++rank) ready(rank, 4);
  const GroupTag tag = take(MessageType::kGroup).at(0).second.tag;
  core = ControllerCore({.size = kSize, .token = {}, .lease = kLease, .epoch = 2}, now);
  for (const int rank : {0, 1, 2}) say(rank, {.type = MessageType::kHeartbeat});
  EXPECT_THAT(take(MessageType::kUnknown), SizeIs(3));
  const auto hello = [&](int rank, std::int64_t epoch) {
    core.on_message("id" + std::to_string(rank),
                    {.type = MessageType::kHello, .rank = rank, .count = kSize, .number = epoch},
                    now);
  };
  for (const int rank : {0, 1, 2}) hello(rank, 1);
  const auto welcomed = take(MessageType::kWelcome);
  ASSERT_THAT(welcomed, SizeIs(testing::Ge(3)));
  const std::uint32_t epoch = welcomed.back().second.epoch;
  EXPECT_GT(epoch, 2u);
  const ReadyNote note{.grouping = {.group_size = 4}};
  const auto tell = [&](int rank, MessageType type, std::uint32_t as_of) {
    core.on_message("id" + std::to_string(rank),
                    {.type = type,
                     .epoch = as_of,
                     .seq = ++seq,
                     .rank = -1,
                     .tag = tag,
                     .ranks = {0, 1, 2, 3},
                     .value = encode(note)},
                    now);
  };
  const std::uint64_t refused = core.refused();
  tell(0, MessageType::kDone, 1);  // of the old epoch
  EXPECT_EQ(core.refused(), refused + 1);
  EXPECT_EQ(core.groups().size(), 0u);
  // Rank 3 has died: 0 completed the average, 1 and 2 could not, and get it from 0.
  tell(0, MessageType::kDone, epoch);
  tell(1, MessageType::kFail, epoch);
  tell(2, MessageType::kFail, epoch);
  EXPECT_THAT(take(MessageType::kGroup), IsEmpty());
  EXPECT_EQ(core.groups().counts().adopted, 1u);
  for (const TimePoint end = now + 3 * kLease; now < end;) {
    now += kHeartbeat;
    for (const int rank : {0, 1, 2}) {
      core.on_message("id" + std::to_string(rank),
                      {.type = MessageType::kHeartbeat, .epoch = epoch}, now);
    }
    core.on_time(now);
  }
  EXPECT_TRUE(core.is_lost(3)) << "it did not come back";
  tell(0, MessageType::kReady, epoch);
  const auto healed = take(MessageType::kGroup);
  ASSERT_THAT(healed, SizeIs(3));
  for (const auto& [rank, group] : healed) {
    EXPECT_THAT(group.ranks, ElementsAre(0, 1, 2));
    EXPECT_EQ(group.tag.id, tag.id);
    EXPECT_EQ(decode_group(group.value)->donor, 0);
  }
}

// Partial scenario 29: a process that is started again with the rank of one that lived, or died, is
// told that the rank is taken; nothing that is meant for one reaches the other, and the others go
// on.
TEST_F(Membership, PartialScenario29ARankThatComesAgainIsAnotherProcess) {
  join({0, 1});
  const auto come_again = [&] {
    core.on_message("id1 again", {.type = MessageType::kHello, .rank = 1, .count = kSize}, now);
    bool refused = false;
    for (const auto& output : core.take_output()) {
      if (output.to != "id1 again") continue;
      EXPECT_EQ(output.message.type, MessageType::kRefused);
      EXPECT_THAT(output.message.value, testing::HasSubstr("rank 1 is held by another"));
      refused = true;
    }
    EXPECT_TRUE(refused);
  };
  come_again();
  ready(1, 2);
  ready(0, 2);
  for (const auto& output : core.take_output()) EXPECT_NE(output.to, "id1 again");
  core.report_lost(1, "the test ended it");
  come_again();
  core.on_message("id1 again", {.type = MessageType::kReady, .epoch = 1, .seq = 1}, now);
  EXPECT_THAT(take(), IsEmpty());
}

// What the controller counts, and who is slow (scenario 43).
TEST_F(Membership, PartialScenario43MetricsTellWhoIsSlowAndWhyGroupsWereAborted) {
  join({0, 1, 2, 3});
  for (int round = 0; round < 5; ++round) {
    for (const int rank : {0, 1, 2, 3}) {
      if (rank == 2) pass(seconds(0.3), {0, 1, 2, 3});
      ready(rank, 4);
    }
    const auto told = take(MessageType::kGroup);
    ASSERT_THAT(told, SizeIs(4));
    pass(seconds(0.05), {0, 1, 2, 3});
    for (const auto& [rank, group] : told) done(rank, group.tag);
  }
  for (int rank = 0; rank < kSize; ++rank) ready(rank, 4);
  const GroupTag tag = take(MessageType::kGroup).at(0).second.tag;
  for (const int rank : {0, 1, 2}) fail(rank, tag, 3, 4);
  core.report_lost(3, "the test ended it");
  const GroupMetrics metrics = core.metrics();
  EXPECT_EQ(metrics.groups.formed, 6u);
  EXPECT_EQ(metrics.groups.committed, 5u);
  EXPECT_EQ(metrics.groups.retried, 1u);
  EXPECT_EQ(metrics.groups.aborts[static_cast<std::size_t>(AbortReason::kOther)], 1u);
  EXPECT_EQ(metrics.running, 1);
  EXPECT_EQ(metrics.training, 3);
  EXPECT_EQ(metrics.live, 3);
  EXPECT_EQ(metrics.workers[3].suspected, 3u);
  EXPECT_EQ(metrics.size.count, 6u);
  EXPECT_NEAR(metrics.size.mean(), 4, 1e-9);
  EXPECT_NEAR(metrics.averaging.mean(), 0.05, 1e-9);
  EXPECT_NEAR(metrics.waits.most, 0.3, 1e-9);
  EXPECT_NEAR(metrics.workers[0].participation, 1, 0.01);
  EXPECT_EQ(metrics.least_weight, 0.25);
  const auto slow = metrics.stragglers();
  ASSERT_THAT(slow, SizeIs(4));
  EXPECT_THAT((std::vector{slow[0].rank, slow[1].rank}), testing::UnorderedElementsAre(2, 3));
  EXPECT_GT(slow[0].step, slow[3].step);
}

// Matches and ends a group of every subset of eight ranks.
void run_all_subsets(Matchmaker& matchmaker, GroupTable& table, TimePoint& now) {
  constexpr unsigned kRanks = 8;
  for (unsigned subset = 0; subset < 1u << kRanks; ++subset) {
    std::vector<int> members;
    for (unsigned rank = 0; rank < kRanks; ++rank) {
      if ((subset >> rank) % 2 == 1) members.push_back(static_cast<int>(rank));
    }
    const int size = static_cast<int>(members.size());
    if (size < 2) continue;
    matchmaker.use({.group_size = size});
    for (const int rank : members) matchmaker.ready(rank, {}, now);
    now += seconds(1);
    matchmaker.next(now);
    now += seconds(1e4);  // any hold is over
    const auto group = matchmaker.waiting() == 0 ? members : matchmaker.next(now);
    ASSERT_EQ(group, members);
    const GroupTag tag = table.form(members);
    for (const int rank : members) {
      ASSERT_TRUE(table.awaits(rank, tag));
      const auto verdict = table.done(rank);
      ASSERT_EQ(verdict.has_value(), rank == members.back());
    }
    ASSERT_EQ(matchmaker.waiting(), 0);
    ASSERT_EQ(table.size(), 0u);
  }
}

// Sanitizers have their own malloc, and these bytes are 0 under them.
TEST(Subsets, PartialScenario10AndScenario32AllOfThemLeaveNothingBehind) {
  Matchmaker matchmaker(8);
  GroupTable table(1);
  TimePoint now(seconds(100));
  run_all_subsets(matchmaker, table, now);
  const std::size_t before = mallinfo2().uordblks;
  for (int round = 0; round < 40; ++round) run_all_subsets(matchmaker, table, now);  // 9,880 groups
  EXPECT_LE(mallinfo2().uordblks, before + 4096);
}

}  // namespace
}  // namespace motley
