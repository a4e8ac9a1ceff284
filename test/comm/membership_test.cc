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
  void ready(int rank, int group_size) {
    say(rank, {.type = MessageType::kReady, .seq = ++seq, .count = group_size});
  }
  void done(int rank, const GroupTag& tag) {
    say(rank, {.type = MessageType::kDone, .seq = ++seq, .tag = tag});
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
TEST_F(Membership, Scenario30ASilentRankIsGivenUpInTime) {
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
  say(0, {.type = MessageType::kFail, .seq = ++seq, .rank = 2, .tag = tag});
  say(1, {.type = MessageType::kFail, .seq = ++seq, .rank = 3, .tag = tag});
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
    for (const int rank : members) matchmaker.ready(rank, now);
    now += seconds(1);  // any hold is over
    ASSERT_EQ(matchmaker.next(size, size, now), members);
    const GroupTag tag = table.form(members);
    for (const int rank : members) {
      ASSERT_TRUE(table.awaits(rank, tag));
      const auto verdict = table.report(rank, GroupTable::Report::kDone);
      ASSERT_EQ(verdict.has_value(), rank == members.back());
    }
    ASSERT_EQ(matchmaker.waiting(), 0);
    ASSERT_EQ(table.size(), 0u);
  }
}

// Sanitizers have their own malloc, and these bytes are 0 under them.
TEST(Subsets, Scenario32AllOfThemLeaveNothingBehind) {
  Matchmaker matchmaker;
  GroupTable table(1);
  TimePoint now(seconds(100));
  run_all_subsets(matchmaker, table, now);
  const std::size_t before = mallinfo2().uordblks;
  for (int round = 0; round < 40; ++round) run_all_subsets(matchmaker, table, now);  // 9,880 groups
  EXPECT_LE(mallinfo2().uordblks, before + 4096);
}

}  // namespace
}  // namespace motley
