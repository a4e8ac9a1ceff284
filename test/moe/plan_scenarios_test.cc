// What users of other systems reported of routing and plans, by the numbers of our list; and known
// answers of replication and of uniform routing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "moe/expectation.h"
#include "moe/load_placement.h"
#include "test/moe/routings.h"
#include "test/support/errors.h"

namespace motley::moe {
namespace {

using test::expect_error;
using ::testing::Each;
using ::testing::ElementsAre;

// Four ranks with two experts each, and every set of experts that no token wants.
TEST(Scenario, M1_AnySetOfExpertsMayBeWithoutTokens) {
  const Placement placement = Placement::grid({.experts = 8, .ranks = 4});
  const auto chooser = local_first_chooser();
  for (unsigned mask = 0; mask < 256; ++mask) {
    Routing routing{.top_k = 1};
    for (std::int32_t e = 0; e < 8; ++e) {
      if ((mask >> e & 1) == 0) continue;
      for (std::int32_t i = 0; i <= e; ++i) routing.expert.push_back(e);
    }
    routing.tokens = routing.expert.size();
    routing.weight.assign(routing.tokens, 1.0f);
    count_choices(routing, 8);
    const Plan plan = make_plan({routing, placement, {}, *chooser, 0});
    ASSERT_EQ(plan.rows(), static_cast<std::int64_t>(routing.tokens));
    for (std::size_t e = 0; e < 8; ++e) {
      ASSERT_EQ(plan.send_count[e], (mask >> e & 1) != 0 ? static_cast<int>(e) + 1 : 0) << mask;
    }
  }
}

TEST(Scenario, M7_RanksMayHaveAnyNumberOfTokensUpToTheMost) {
  const Placement placement = Placement::grid({.experts = 2, .ranks = 2});
  const auto chooser = local_first_chooser();
  const CapacityRule rule{.factor = 1};
  const auto plan_of = [&](std::size_t tokens, int rank) {
    std::mt19937_64 random(tokens);
    return make_plan({.routing = random_routing(tokens, 2, 1, random),
                      .placement = placement,
                      .capacity = rule,
                      .chooser = *chooser,
                      .rank = rank,
                      .most_tokens = 8});
  };
  for (const std::size_t tokens : {0, 1, 8}) {
    EXPECT_EQ(plan_of(tokens, 0).capacity, 4) << tokens;  // of the rank with most, not of this one
    EXPECT_EQ(plan_of(tokens, 0).agreement, plan_of(8, 1).agreement);
  }
  expect_error(ErrorCode::kInvalid, {"rank 1", "9 tokens", "8"}, [&] { return plan_of(9, 1); });
}

TEST(Scenario, M8_AllTokensMayWantOneExpert) {
  const Placement placement = Placement::grid({.experts = 4, .ranks = 4});
  Routing routing{.tokens = 100,
                  .top_k = 1,
                  .expert = std::vector<std::int32_t>(100, 2),
                  .weight = std::vector<float>(100, 1.0f)};
  count_choices(routing, 4);
  const auto chooser = local_first_chooser();
  const Plan all = make_plan({routing, placement, {}, *chooser, 1});
  EXPECT_THAT(all.send_count, ElementsAre(0, 0, 100, 0));
  const Plan bounded = make_plan({routing, placement, {.factor = -1}, *chooser, 1});
  EXPECT_THAT(bounded.send_count, ElementsAre(0, 0, 25, 0));
}

TEST(Scenario, M10_PlacesWithoutAChoiceTakeNoRow) {
  Routing routing{.tokens = 3,
                  .top_k = 2,
                  .expert = {kNoExpert, kNoExpert, 1, kNoExpert, kNoExpert, 0},
                  .weight = {0, 0, 1, 0, 0, 1}};
  count_choices(routing, 2);
  EXPECT_THAT(routing.count, ElementsAre(1, 1));
  const Placement placement = Placement::grid({.experts = 2, .ranks = 1});
  const auto chooser = local_first_chooser();
  const Plan plan = make_plan({routing, placement, {}, *chooser});
  EXPECT_THAT(plan.row, ElementsAre(-1, -1, 1, -1, -1, 0));
  EXPECT_THAT(plan.choice, ElementsAre(5, 2));
  Routing none{.tokens = 3,
               .top_k = 1,
               .expert = std::vector<std::int32_t>(3, kNoExpert),
               .weight = std::vector<float>(3, 0.0f)};
  count_choices(none, 2);
  EXPECT_EQ(make_plan({none, placement, {.factor = 1}, *chooser}).rows(), 0);
}

// Gradients of choices that were not served are whatever their buffer held.
TEST(Scenario, M23_GradientsOfLostChoicesAreNotRead) {
  std::mt19937_64 random(3);
  const Routing routing = random_routing(40, 4, 2, random);
  const Placement placement =
      Placement::grid({.experts = 4, .ranks = 4}).with_alive({1, 1, 0, 1}, 1);
  const auto chooser = local_first_chooser();
  const Plan plan =
      make_plan({routing, placement, {.factor = 0.5, .renormalize = Renormalize::kAll}, *chooser});
  ASSERT_GT(plan.over_capacity, 0);
  ASSERT_GT(plan.unreachable, 0);
  const auto gradient = [&](float lost) {
    std::vector<float> dweight(80, 0.5f);
    for (std::size_t i = 0; i < 80; ++i) {
      if (plan.fate[i] != Fate::kServed) dweight[i] = lost;
    }
    return weight_gradient(plan, routing, dweight);
  };
  EXPECT_EQ(gradient(NAN), gradient(0));
}

TEST(Scenario, M34_AChangedOrderOfArrivalChangesNoPlan) {
  std::mt19937_64 random(2);
  const Routing routing = random_routing(50, 8, 3, random);
  const Placement placement = Placement::grid({.experts = 8, .ranks = 4, .replicas = 2});
  const auto chooser = weighted_chooser(std::vector<std::vector<double>>(8, {1, 3}));
  const CapacityRule rule{.factor = 0.5, .order = DropOrder::kSeed, .seed = 3};
  std::set<std::uint64_t> digests;
  for (int i = 0; i < 20; ++i) {
    digests.insert(make_plan({routing, placement, rule, *chooser, 2}).digest);
  }
  EXPECT_EQ(digests.size(), 1u);
}

TEST(GoldenVector, G1_ReplicasAreTheExamplesOfEplb) {
  const std::vector<double> first = {90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86};
  const std::vector<double> second = {20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27};
  const auto slots = [](const std::vector<double>& load) {
    return replicate_by_load({.load = load, .slots = 16, .groups = 4, .hosts = 2, .ranks = 8});
  };
  EXPECT_THAT(slots(first), ElementsAre(5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1));
  EXPECT_THAT(slots(second), ElementsAre(7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1));
  const Placement placement(layout_of(slots(first), {.experts = 12, .ranks = 8, .epoch = 3}));
  EXPECT_EQ(placement.replicas(10), 2);
  EXPECT_EQ(placement.replicas(7), 1);
  EXPECT_EQ(placement.of_rank(1)[0].expert, 5);
  EXPECT_EQ(placement.of_rank(1)[0].replica, 1);
}

// Groups that do not divide among the hosts: one host of all ranks, and every expert a slot.
TEST(LoadPlacement, IsOfAllRanksWhereGroupsDoNotDivide) {
  const std::vector<double> load = {8, 1, 1, 1, 1, 1};
  const auto slots =
      replicate_by_load({.load = load, .slots = 8, .groups = 3, .hosts = 2, .ranks = 4});
  EXPECT_EQ(std::ranges::count(slots, 0), 3);
  for (std::int32_t e = 1; e < 6; ++e) EXPECT_EQ(std::ranges::count(slots, e), 1) << e;
  const auto refused = [&](const ReplicationCase& input, const std::vector<std::string>& facts) {
    expect_error(ErrorCode::kInvalid, facts, [&] { return replicate_by_load(input); });
  };
  refused({.load = load, .slots = 7, .ranks = 4}, {"7 slots", "4 ranks"});
  refused({.load = load, .slots = 4, .ranks = 4}, {"4 slots", "6 experts"});
  refused({.load = load, .slots = 8, .groups = 4, .ranks = 4}, {"6 experts", "4 groups"});
  refused({.load = load, .slots = 8, .hosts = 3, .ranks = 4}, {"4 ranks", "3 hosts"});
  const std::vector<double> bad = {1, -1};
  refused({.load = bad, .slots = 2}, {"expert 1", "-1"});
  expect_error(ErrorCode::kInvalid, {"slot 1", "expert 2 of 2"}, [] {
    return layout_of(std::vector<std::int32_t>{0, 2}, {.experts = 2, .ranks = 1});
  });
}

TEST(GoldenVector, G5_DistinctDestinationsOfUniformChoices) {
  EXPECT_NEAR(expected_parts(256, 8, 8), 5.2947, 5e-5);
  EXPECT_NEAR(expected_parts(256, 8, 16), 6.5233, 5e-5);
  EXPECT_NEAR(expected_parts(256, 8, 32), 7.2668, 5e-5);
  EXPECT_NEAR(expected_parts(256, 8, 64), 7.6758, 5e-5);
  EXPECT_NEAR(expected_parts(64, 8, 8), 5.4326, 5e-5);
  EXPECT_NEAR(expected_parts(8, 2, 8), 2, 1e-12);
  EXPECT_EQ(expected_parts(8, 8, 4), 4);
}

// The same of plans: ranks that a token's rows go to, over tokens that choose 8 of 256 at random.
TEST(GoldenVector, G5_PlansReachAsManyRanks) {
  constexpr std::size_t kTokens = 2000;
  std::mt19937_64 random(4);
  Routing routing{.tokens = kTokens, .top_k = 8};
  std::vector<std::int32_t> order(256);
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t t = 0; t < kTokens; ++t) {
    for (std::size_t j = 0; j < 8; ++j) {
      std::swap(order[j], order[j + random() % (256 - j)]);
      routing.expert.push_back(order[j]);
    }
  }
  routing.weight.assign(8 * kTokens, 0.125f);
  count_choices(routing, 256);
  const Placement placement = Placement::grid({.experts = 256, .ranks = 8});
  const auto chooser = local_first_chooser();
  const Plan plan = make_plan({routing, placement, {}, *chooser});
  double reached = 0;
  for (std::size_t t = 0; t < kTokens; ++t) {
    std::set<int> ranks;
    for (std::size_t j = 0; j < 8; ++j) {
      ranks.insert(placement.physical()[static_cast<std::size_t>(plan.physical[t * 8 + j])].rank);
    }
    reached += static_cast<double>(ranks.size()) / kTokens;
  }
  EXPECT_NEAR(reached, 5.2947, 0.08);  // four deviations of a mean of 2000
}

TEST(GoldenVector, G8_ActiveExpertsOfUniformChoices) {
  EXPECT_NEAR(expected_active(160, 6, 1), 6, 1e-9);
  EXPECT_NEAR(expected_active(160, 6, 64), 146.14, 5e-3);
  EXPECT_NEAR(expected_active(256, 8, 128), 251.60, 5e-3);
}

}  // namespace
}  // namespace motley::moe
