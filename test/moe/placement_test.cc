// Placements refuse what cannot be, and choosers of replicas spread choices as they say.
#include "moe/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "moe/replica_chooser.h"
#include "test/support/errors.h"

namespace motley::moe {
namespace {

using test::expect_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Placement, OfAGridPutsEveryShardOnItsRank) {
  const Placement placement =
      Placement::grid({.experts = 3, .ranks = 8, .replicas = 2, .shards = 2});
  ASSERT_EQ(placement.physical().size(), 12u);
  EXPECT_EQ(placement.most_shards(), 2);
  EXPECT_EQ(placement.of_rank(0).size(), 2u);  // experts 0 and 1, first halves
  EXPECT_EQ(placement.of_rank(3).size(), 1u);  // expert 2, second half
  EXPECT_EQ(placement.of_rank(3)[0], (PhysicalExpert{2, 3, 0, 0, 1, 2}));
  EXPECT_EQ(placement.of_rank(6)[0], (PhysicalExpert{2, 6, 0, 1, 0, 2}));
  EXPECT_EQ(placement.replicas(2), 2);
  EXPECT_THAT(placement.replica(1, 1), ElementsAre(7, 9));
  EXPECT_TRUE(placement.live(1, 1));
  const Placement lost = placement.with_alive({1, 1, 1, 1, 1, 0, 1, 1}, 1);
  EXPECT_FALSE(lost.live(1, 1));
  EXPECT_TRUE(lost.live(1, 0));
  EXPECT_NE(lost.digest(), placement.digest());
  expect_error(ErrorCode::kInvalid, {"6 ranks"}, [] {
    return Placement::grid({.experts = 3, .ranks = 6, .replicas = 2, .shards = 2});
  });
}

TEST(Placement, SaysWhatIsWrongWithALayout) {
  const auto problem = [](std::vector<PhysicalExpert> physical) {
    return Placement::problem_of({.experts = 2, .ranks = 2, .physical = std::move(physical)});
  };
  const PhysicalExpert zero{0, 0, 0};
  EXPECT_THAT(problem({zero, {1, 1, 0}}), IsEmpty());
  EXPECT_THAT(problem({zero, {1, 0, 0}}), HasSubstr("slot 0 of rank 0 holds experts"));
  EXPECT_THAT(problem({zero, {2, 1, 0}}), HasSubstr("expert 2 of 2"));
  EXPECT_THAT(problem({zero, {1, 2, 0}}), HasSubstr("rank 2 of 2"));
  EXPECT_THAT(problem({zero}), HasSubstr("ends with expert 0"));
  EXPECT_THAT(problem({{1, 0, 0}}), HasSubstr("expert 1 replica 0"));
  EXPECT_THAT(problem({zero, {1, 0, 1, 1}}), HasSubstr("expert 1 replica 1"));
  EXPECT_THAT(problem({zero, {1, 0, 1, 0, 1, 2}}), HasSubstr("shard 1 of 2"));
  EXPECT_THAT(problem({zero, {1, 0, 1, 0, 0, 2}}), HasSubstr("shard 0 of 2"));
  EXPECT_THAT(problem({zero, {1, 0, 1, 0, 2, 2}}), HasSubstr("shard 2 of 2"));
  EXPECT_THROW(Placement({.experts = 2, .ranks = 2, .physical = {zero}}), Error);
  EXPECT_THAT(Placement::problem_of({.experts = 0, .ranks = 2, .alive = {1}}),
              HasSubstr("alive is of 1 ranks, not 2"));
}

TEST(ReplicaChooser, PrefersTheOwnRankThenTheOwnGroup) {
  // Expert 0 on ranks 0, 1, 2; every rank but 3 has it, and 3 is in the group of 2.
  const Placement placement(
      {.experts = 1, .ranks = 4, .physical = {{0, 0, 0, 0}, {0, 1, 0, 1}, {0, 2, 0, 2}}});
  const auto chosen = [&](const ReplicaChooser& chooser, int rank, std::size_t n) {
    std::vector<int> replica(n, -1);
    chooser.choose({placement, 0, std::vector<int>{0, 1, 2}, rank}, replica);
    return replica;
  };
  const auto local = local_first_chooser({0, 0, 1, 1});
  EXPECT_THAT(chosen(*local, 1, 3), ElementsAre(1, 1, 1));
  EXPECT_THAT(chosen(*local, 3, 3), ElementsAre(2, 2, 2));
  EXPECT_THAT(chosen(*local_first_chooser(), 3, 4), ElementsAre(0, 1, 2, 0));
  EXPECT_THAT(chosen(*even_split_chooser(), 1, 4), ElementsAre(1, 2, 0, 1));
  EXPECT_THAT(chosen(*weighted_chooser({{2, 1, 0}}), 0, 6), ElementsAre(0, 1, 0, 0, 1, 0));
  EXPECT_THAT(chosen(*weighted_chooser({{0, 0, 0}}), 0, 3), ElementsAre(0, 1, 2));
  expect_error(ErrorCode::kInvalid, {"expert 0", "3 replicas", "2 weights"}, [&] {
    return chosen(*weighted_chooser({{1, 1}}), 0, 1);
  });
  expect_error(ErrorCode::kInvalid, {"2 ranks", "4"}, [&] {
    return chosen(*local_first_chooser({0, 1}), 0, 1);
  });
}

}  // namespace
}  // namespace motley::moe
