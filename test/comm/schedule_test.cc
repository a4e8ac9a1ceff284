// Schedules are what their headers say: a few written out by hand, and for every size the number of
// steps and chunks. That they are right is check_test's subject.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "comm/algorithm/families.h"

namespace motley {
namespace {

using ::testing::ElementsAre;

std::vector<Step> steps_of(const Schedule& schedule) {
  std::vector<Step> steps;
  for (int i = 0; i < schedule.steps; ++i) steps.push_back(schedule.at(i));
  return steps;
}

// Chunks that a schedule sends.
int chunks_sent(const Schedule& schedule) {
  int sent = 0;
  for (const Step& step : steps_of(schedule))
    sent += step.kind == Step::kSend ? step.chunk_count : 0;
  return sent;
}

TEST(RingSchedule, PassesChunksRoundTwice) {
  EXPECT_EQ(to_text(ring_all_reduce({1, 3})),
            "send chunk 1 to 2\nrecv+reduce chunk 0 from 0\n"
            "send chunk 0 to 2\nrecv+reduce chunk 2 from 0\n"
            "send chunk 2 to 2\nrecv chunk 1 from 0\n"
            "send chunk 1 to 2\nrecv chunk 0 from 0\n");
}

TEST(DirectSchedule, CollectsTheOwnChunkAndGivesItOut) {
  EXPECT_EQ(to_text(direct_all_reduce({0, 3})),
            "send chunk 1 to 1\nrecv+reduce chunk 0 from 2\n"
            "send chunk 2 to 2\nrecv+reduce chunk 0 from 1\n"
            "send chunk 0 to 1\nrecv chunk 2 from 2\n"
            "send chunk 0 to 2\nrecv chunk 1 from 1\n");
}

// 5 ranks: a core of 4 (ranks 0, 2, 3, 4), of which rank 0 stands for 1 too.
TEST(HalvingDoublingSchedule, HalvesThenDoubles) {
  EXPECT_EQ(to_text(halving_doubling_all_reduce({1, 5})),
            "send chunks 0..3 to 0\nrecv chunks 0..3 from 0\n");
  EXPECT_EQ(to_text(halving_doubling_all_reduce({0, 5})),
            "recv+reduce chunks 0..3 from 1\n"
            "send chunks 2..3 to 2\nrecv+reduce chunks 0..1 from 2\n"
            "send chunk 1 to 3\nrecv+reduce chunk 0 from 3\n"
            "send chunk 0 to 3\nrecv chunk 1 from 3\n"
            "send chunks 0..1 to 2\nrecv chunks 2..3 from 2\n"
            "send chunks 0..3 to 1\n");
  EXPECT_EQ(halving_doubling_all_reduce({4, 5}).at(0), (Step{Step::kSend, 3, 0, 2}));
}

TEST(TreeBroadcastSchedule, DoublesTheRanksThatHaveTheData) {
  EXPECT_EQ(to_text(tree_broadcast({2, 6, 2})),
            "send chunk 0 to 3\nsend chunk 0 to 4\nsend chunk 0 to 0\n");
  EXPECT_EQ(to_text(tree_broadcast({3, 6, 2})),
            "recv chunk 0 from 2\nsend chunk 0 to 5\nsend chunk 0 to 1\n");
  EXPECT_EQ(to_text(tree_broadcast({1, 6, 2})), "recv chunk 0 from 3\n");
}

TEST(DisseminationBarrierSchedule, TellsRanksAtDoublingDistance) {
  EXPECT_EQ(to_text(dissemination_barrier({0, 3})),
            "send chunk 0 to 1\nrecv chunk 0 from 2\nsend chunk 0 to 2\nrecv chunk 0 from 1\n");
}

TEST(DirectAllToAllSchedule, SendsEveryBlockStraightToItsOwner) {
  EXPECT_EQ(to_text(direct_all_to_all({1, 3})),
            "copy chunk 1 to chunk 4\n"
            "send chunk 2 to 2\nrecv chunk 3 from 0\n"
            "send chunk 0 to 0\nrecv chunk 5 from 2\n");
}

TEST(Schedules, SendNothingWhereThereIsOneRank) {
  for (int k = 0; k < kCallKinds; ++k) {
    const auto kind = static_cast<CallKind>(k);
    if (kind == CallKind::kSendRecv) continue;  // pairs only
    for (const Algorithm& family : algorithms_of(kind)) {
      for (const Step& step : steps_of(family.make({0, 1})))
        EXPECT_TRUE(step.is_local()) << family.name << ": " << to_text(step);
    }
  }
}

// Buffers are cut by `chunks` and `max_step_chunks`, so ranks must not differ in them.
void expect_cut_alike(CallKind kind, const Algorithm& family, int size) {
  const bool any_number = fixed_chunks(kind, {0, size}) == 0;
  const Schedule first = family.make({0, size});
  int most = 0;
  for (int rank = 0; rank < size; ++rank) {
    const Schedule schedule = family.make({rank, size});
    const std::string where =
        std::string(family.name) + ", rank " + std::to_string(rank) + " of " + std::to_string(size);
    if (any_number) {
      EXPECT_EQ(schedule.first_scratch(), first.first_scratch()) << where;
    }
    EXPECT_EQ(schedule.max_step_chunks, first.max_step_chunks) << where;
    for (const Step& step : steps_of(schedule)) {
      if (!step.is_local()) most = std::max(most, step.chunk_count);
    }
  }
  EXPECT_EQ(most, first.max_step_chunks) << family.name << " of " << size;
}

TEST(Schedules, CutTheBufferAlikeOnAllRanks) {
  for (int k = 0; k < kCallKinds; ++k) {
    const auto kind = static_cast<CallKind>(k);
    if (kind == CallKind::kSendRecv) continue;  // pairs only
    for (const Algorithm& family : algorithms_of(kind)) {
      for (int size = 2; size <= 33; ++size) expect_cut_alike(kind, family, size);
    }
  }
}

TEST(Schedules, SendNoMoreThanTheirHeadersSay) {
  for (int size = 2; size <= 40; ++size) {
    const int core = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ(chunks_sent(ring_all_reduce({rank, size})), 2 * (size - 1));
      EXPECT_EQ(chunks_sent(direct_all_reduce({rank, size})), 2 * (size - 1));
      EXPECT_LE(chunks_sent(halving_doubling_all_reduce({rank, size})),
                2 * (core - 1) + (core == size ? 0 : core));
      EXPECT_LE(halving_doubling_all_reduce({rank, size}).steps,
                4 * (std::bit_width(static_cast<unsigned>(core)) - 1) + (core == size ? 0 : 2));
    }
  }
}

// Two reads may go in any order; a write and anything else on the same chunk may not.
TEST(Steps, ConflictWhereOneWritesWhatTheOtherTouches) {
  const Step send{Step::kSend, 1, 2, 2}, recv{Step::kRecv, 1, 3, 1};
  const Step copy{Step::kCopy, 0, 3, 1, 7}, reduce{Step::kReduce, 0, 3, 2, 6};
  EXPECT_FALSE(conflict(send, send));
  EXPECT_FALSE(conflict(send, copy));  // both read chunk 3
  EXPECT_TRUE(conflict(send, recv));
  EXPECT_TRUE(conflict(recv, copy));
  EXPECT_TRUE(conflict(copy, recv));
  EXPECT_TRUE(conflict(copy, reduce));  // both write chunk 7
  EXPECT_TRUE(conflict({Step::kSend, 1, 7, 1}, copy));
  EXPECT_FALSE(conflict({Step::kRecv, 1, 8, 1}, copy));
  EXPECT_FALSE(conflict({Step::kRecv, 1, 3, 0}, copy));  // touches nothing
}

TEST(Schedule, KeepsAListOfSteps) {
  const std::vector<Step> steps = {{Step::kSend, 1, 2, 3}, {Step::kRecv, 0, 0, 0}};
  const Schedule schedule = Schedule::from_steps(5, steps);
  EXPECT_EQ(schedule.chunks, 5);
  EXPECT_EQ(schedule.max_step_chunks, 3);
  EXPECT_THAT(steps_of(schedule), ElementsAre(steps[0], steps[1]));
  EXPECT_EQ(to_text(schedule), "send chunks 2..4 to 1\nrecv nothing from 0\n");
}

}  // namespace
}  // namespace motley
