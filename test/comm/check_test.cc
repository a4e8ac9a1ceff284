// The checker proves all families at every size from 1 to 64, and is itself checked: for every
// removal, duplication and swap of steps its verdict equals that of a brute-force interpreter.
#include "comm/algorithm/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <random>
#include <string>

#include "comm/algorithm/families.h"
#include "test/support/brute_force.h"
#include "test/support/every_family.h"

namespace motley {
namespace {

using test::Family;
using test::kBruteForceRanks;
using test::Program;
using test::RankPlan;
using ::testing::HasSubstr;

// The schedules of a group, as lists that can be changed.
struct Group {
  CallKind kind;
  int root;
  std::vector<RankPlan> ranks;

  Group(const Family& family, int size, int root_)
      : kind(family.algorithm->moves_as(family.kind)), root(root_) {
    for (int rank = 0; rank < size; ++rank) {
      const Schedule schedule = family.algorithm->make({.rank = rank, .size = size, .root = root});
      RankPlan& plan = ranks.emplace_back();
      plan.chunks = schedule.chunks;
      for (int i = schedule.first_scratch(); i < schedule.chunks; ++i)
        plan.like.push_back(schedule.sized_as(i));
      for (int i = 0; i < schedule.steps; ++i) plan.steps.push_back(schedule.at(i));
    }
  }
  Verdict check() const {
    std::vector<Schedule> schedules;
    for (const RankPlan& plan : ranks) {
      Schedule& schedule = schedules.emplace_back(Schedule::from_steps(plan.chunks, plan.steps));
      schedule.scratch = static_cast<int>(plan.like.size());
      schedule.scratch_like = [like = plan.like](int i) {
        return like[static_cast<std::size_t>(i)];
      };
    }
    return motley::check(kind, schedules, root);
  }
  bool right() const { return test::right_by_brute_force(kind, ranks, root); }
};

class EveryFamily : public ::testing::TestWithParam<Family> {
 protected:
  // Compares the two verdicts on `group`, in which `program` was changed as `change` says.
  void compare(const Group& group, const std::string& change) {
    const Verdict verdict = group.check();
    const bool right = group.right();
    ++mutants_;
    survivors_ += right ? 1 : 0;
    if (verdict.ok() != right) {
      ADD_FAILURE() << change << ": brute force says " << (right ? "right" : "wrong")
                    << ", the checker '" << verdict.flaw << "'";
    }
  }

  // Numbers of ranks from 1 on; a message is sent in pairs.
  static std::vector<int> sizes(int most) {
    if (GetParam().kind == CallKind::kSendRecv) return {2};
    std::vector<int> all(static_cast<std::size_t>(most));
    std::iota(all.begin(), all.end(), 1);
    return all;
  }

  int mutants_ = 0;
  int survivors_ = 0;  // changes that leave the schedules right
};

TEST_P(EveryFamily, IsProvedForSizes1To64) {
  for (const int size : sizes(64)) {
    if (!has_root(GetParam().kind) || size <= 20) {
      EXPECT_EQ(check(GetParam().kind, *GetParam().algorithm, size).flaw, "") << "size " << size;
      continue;
    }
    // Every root takes too long for a test that runs all the time.
    for (const int root : {0, 1, size / 2, size - 1}) {
      EXPECT_EQ(Group(GetParam(), size, root).check().flaw, "") << size << ", root " << root;
    }
  }
}

TEST_P(EveryFamily, IsRightByBruteForce) {
  for (const int size : sizes(kBruteForceRanks)) {
    for (int root = 0; root < size; ++root) EXPECT_TRUE(Group(GetParam(), size, root).right());
  }
}

// Those that look at hosts are others in disguise among so few ranks, with more steps: they are
// changed at random only.
class FamilyOfLikeRanks : public EveryFamily {
 public:
  static std::vector<Family> all() {
    std::vector<Family> families = test::every_family();
    std::erase_if(families, [](const Family& it) { return it.algorithm->suits != nullptr; });
    return families;
  }
};

TEST_P(FamilyOfLikeRanks, IsJudgedAsByBruteForceAfterEachChange) {
  for (const int size : sizes(kBruteForceRanks)) {
    Group group(GetParam(), size, size / 2);
    if (group.ranks[0].steps.size() > 28) break;  // quadratically many
    for (int rank = 0; rank < size; ++rank) {
      Program& program = group.ranks[static_cast<std::size_t>(rank)].steps;
      const Program whole = program;
      for (std::size_t i = 0; i < whole.size(); ++i) {
        const std::string where = "size " + std::to_string(size) + ", rank " +
                                  std::to_string(rank) + ", step " + std::to_string(i);
        program.erase(program.begin() + static_cast<std::ptrdiff_t>(i));
        compare(group, where + " removed");
        program = whole;
        program.insert(program.begin() + static_cast<std::ptrdiff_t>(i), whole[i]);
        compare(group, where + " doubled");
        program = whole;
        for (std::size_t j = i + 1; j < whole.size(); ++j) {
          std::swap(program[i], program[j]);
          compare(group, where + " swapped with step " + std::to_string(j));
          program = whole;
        }
      }
    }
  }
  RecordProperty("mutants", mutants_);
  RecordProperty("survivors", survivors_);
  EXPECT_GT(mutants_, GetParam().kind == CallKind::kSendRecv ? 3 : 30);
  EXPECT_LT(survivors_, mutants_ / 2);  // most changes break something
}

// Two to four changes of any kind at once: steps moved, their kind, peer or chunks altered.
TEST_P(EveryFamily, IsJudgedAsByBruteForceAfterRandomChanges) {
  for (int seed = 0; seed < 1'500; ++seed) {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    const auto below = [&](std::size_t n) { return static_cast<int>(random() % n); };
    const int size = sizes(2).size() == 1 ? 2 : 2 + below(kBruteForceRanks - 1);
    Group group(GetParam(), size, below(static_cast<std::size_t>(size)));
    for (int changes = 2 + below(3); changes > 0; --changes) {
      const int rank = below(group.ranks.size());
      Program& program = group.ranks[static_cast<std::size_t>(rank)].steps;
      if (program.empty()) continue;
      const int chunks = group.ranks[static_cast<std::size_t>(rank)].chunks;
      Step& step = program[static_cast<std::size_t>(below(program.size()))];
      switch (below(6)) {
        case 0:
          std::swap(step, program[static_cast<std::size_t>(below(program.size()))]);
          break;
        case 1:
          step.kind = std::array{Step::kSend, Step::kRecv, Step::kRecvReduce, Step::kCopy,
                                 Step::kReduce}[random() % 5];
          break;
        case 2:
          step.peer = (rank + 1 + below(static_cast<std::size_t>(size) - 1)) % size;
          break;
        case 3:
          step.chunk_count = below(static_cast<std::size_t>(chunks - step.first_chunk) + 1);
          break;
        case 4:
          step.to_chunk = below(static_cast<std::size_t>(chunks));
          break;
        default:
          program.erase(program.begin() + below(program.size()));
      }
    }
    compare(group, "seed " + std::to_string(seed));
  }
}

INSTANTIATE_TEST_SUITE_P(Check, EveryFamily, ::testing::ValuesIn(test::every_family()),
                         test::name_of);
INSTANTIATE_TEST_SUITE_P(Check, FamilyOfLikeRanks, ::testing::ValuesIn(FamilyOfLikeRanks::all()),
                         test::name_of);

// What is wrong is said with rank, step and chunk.
std::string flaw_of(CallKind kind, int chunks, const std::vector<Program>& programs, int root = 0) {
  std::vector<Schedule> schedules;
  for (const Program& program : programs)
    schedules.push_back(Schedule::from_steps(chunks, program));
  return check(kind, schedules, root).flaw;
}

constexpr Step send(int peer, int chunk = 0) { return {Step::kSend, peer, chunk, 1}; }
constexpr Step copy(int from, int to) { return {Step::kCopy, 0, from, 1, to}; }
constexpr Step recv(int peer, int chunk = 0) { return {Step::kRecv, peer, chunk, 1}; }
constexpr Step reduce(int peer, int chunk = 0) { return {Step::kRecvReduce, peer, chunk, 1}; }

TEST(Check, NamesTheUnreceivedMessage) {
  const std::string flaw = flaw_of(CallKind::kAllReduce, 1, {{send(1)}, {}});
  EXPECT_THAT(flaw, HasSubstr("rank 0 of 2, step 0 (send chunk 0 to 1)"));
  EXPECT_THAT(flaw, HasSubstr("rank 1, which has finished"));
}

TEST(Check, NamesTheRanksThatWaitForEachOther) {
  const Program a = {recv(1), send(1)};
  const Program b = {recv(0), send(0)};
  const std::string flaw = flaw_of(CallKind::kAllReduce, 1, {a, b});
  EXPECT_THAT(flaw, HasSubstr("rank 0 of 2, step 0 (recv chunk 0 from 1)"));
  EXPECT_THAT(flaw, HasSubstr("rank 1 of 2, step 0 (recv chunk 0 from 0)"));
}

TEST(Check, NamesTheMissingTermAndTheOneCountedTwice) {
  // Exchanged instead of reduced: either rank ends with the other's term alone.
  EXPECT_THAT(flaw_of(CallKind::kAllReduce, 1, {{send(1), recv(1)}, {send(0), recv(0)}}),
              HasSubstr("rank 0 of 2 ends with chunk 0 without the term of rank 0"));
  EXPECT_THAT(flaw_of(CallKind::kAllReduce, 1,
                      {{send(1), reduce(1), reduce(1)}, {send(0), send(0), reduce(0)}}),
              HasSubstr("with the term of rank 1 more than once"));
}

// a + (b + c) on ranks 0 and 2, (a + b) + c on rank 1: each term once, yet not the same bits.
TEST(Check, NamesTheRankThatReducedInAnotherOrder) {
  EXPECT_EQ(flaw_of(CallKind::kAllReduce, 1,
                    {{send(1), reduce(2), send(2)},
                     {send(2), reduce(0), reduce(2)},
                     {send(1), reduce(1), send(0), recv(0)}}),
            "rank 1 of 3 ends with chunk 0 reduced in another order than on rank 0");
}

TEST(Check, NamesTheChunksThatDifferInSize) {
  EXPECT_THAT(flaw_of(CallKind::kAllReduce, 2, {{send(1, 0)}, {reduce(0, 1)}}),
              AllOf(HasSubstr("send chunk 0 to 1"), HasSubstr("recv+reduce chunk 1 from 0")));
  EXPECT_THAT(flaw_of(CallKind::kAllToAllV, 4, {{send(1, 0)}, {recv(0, 2)}}),
              AllOf(HasSubstr("send chunk 0 to 1"), HasSubstr("recv chunk 2 from 0")));
}

// Chunks 0 and 1 are the blocks of `in`, 2 and 3 those of `out`.
TEST(Check, NamesTheBlockThatCameToTheWrongPlace) {
  EXPECT_EQ(flaw_of(CallKind::kAllToAll, 4,
                    {{send(1, 1), recv(1, 3), copy(0, 2)}, {send(0, 1), recv(0, 2), copy(0, 3)}}),
            "rank 0 of 2 ends with chunk 3 other than block 0 of rank 1");
  EXPECT_THAT(flaw_of(CallKind::kAllToAll, 4, {{copy(2, 3)}, {}}), HasSubstr("reads chunk 2"));
  EXPECT_THAT(flaw_of(CallKind::kAllToAll, 4, {{copy(1, 0)}, {}}),
              HasSubstr("copy chunk 1 to chunk 0) writes chunk 0 of `in`"));
  EXPECT_THAT(flaw_of(CallKind::kAllToAll, 5, {{}, {}}), HasSubstr("5 chunks"));
}

TEST(Check, NamesWhatIsReadBeforeItIsWritten) {
  EXPECT_THAT(flaw_of(CallKind::kBroadcast, 1, {{recv(1)}, {send(0)}}),
              HasSubstr("rank 1 of 2, step 0 (send chunk 0 to 0) reads chunk 0"));
  EXPECT_THAT(flaw_of(CallKind::kBroadcast, 1, {{send(1)}, {reduce(0)}}),
              HasSubstr("reduces chunk 0"));
}

TEST(Check, NamesTheRankThatABarrierDoesNotWaitFor) {
  // Signals that touch no chunk wait for none: after one round nobody has heard of the rank
  // opposite.
  std::vector<Program> programs(4);
  for (int r = 0; r < 4; ++r) {
    for (const int distance : {1, 2}) {
      programs[static_cast<std::size_t>(r)].push_back({Step::kSend, (r + distance) % 4, 0, 0});
      programs[static_cast<std::size_t>(r)].push_back({Step::kRecv, (r + 4 - distance) % 4, 0, 0});
    }
  }
  EXPECT_THAT(flaw_of(CallKind::kBarrier, 1, programs),
              HasSubstr("rank 0 of 4 can finish before rank 1 has started"));
}

TEST(Check, NamesStepsOutOfRange) {
  EXPECT_THAT(flaw_of(CallKind::kAllReduce, 1, {{send(2)}, {}}), HasSubstr("no other rank"));
  EXPECT_THAT(flaw_of(CallKind::kAllReduce, 1, {{send(0)}, {}}), HasSubstr("no other rank"));
  EXPECT_THAT(flaw_of(CallKind::kAllReduce, 2, {{send(1, 2)}, {reduce(0, 2)}}),
              HasSubstr("2 chunks"));
}

// With a window of 2 and synchronous sends, three sends before the receives wait for each other.
TEST(Check, RefusesWhatCompletesOnlyWithALargerWindow) {
  const Program a = {send(1, 0), send(1, 1), send(1, 2), reduce(1, 0), reduce(1, 1), reduce(1, 2)};
  Program b = a;
  for (Step& step : b) step.peer = 0;
  EXPECT_THAT(flaw_of(CallKind::kAllReduce, 3, {a, b}), HasSubstr("circle"));
}

}  // namespace
}  // namespace motley
