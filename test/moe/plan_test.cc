// Plans: known answers of capacity and drop order, and over random routings and placements that
// every served choice has exactly its rows, in the order that plan.h promises.
#include "moe/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "test/moe/routings.h"
#include "test/support/errors.h"

namespace motley::moe {
namespace {

using test::expect_error;
using ::testing::Each;
using ::testing::ElementsAre;

using Drop = std::tuple<int, int, int>;  // token, choice, expert

std::vector<Drop> dropped(const Routing& routing, const Plan& plan) {
  std::vector<Drop> drops;
  for (int i = 0; i < static_cast<int>(plan.fate.size()); ++i) {
    if (plan.fate[static_cast<std::size_t>(i)] != Fate::kOverCapacity) continue;
    drops.emplace_back(i / plan.top_k, i % plan.top_k, routing.expert[static_cast<std::size_t>(i)]);
  }
  return drops;
}

Placement on_one_rank(int experts) { return Placement::grid({.experts = experts, .ranks = 1}); }

// What becomes of a routing on one rank.
Plan plan_of(const Routing& routing, const CapacityRule& rule, std::int64_t step = 0) {
  return make_plan({.routing = routing,
                    .placement = on_one_rank(static_cast<int>(routing.count.size())),
                    .capacity = rule,
                    .chooser = *even_split_chooser(),
                    .step = step});
}

struct GoldenDrops {
  CapacityRule rule;
  std::int64_t capacity;
  std::vector<Drop> drops;
};

TEST(GoldenVector, G2_DropsAreTutels) {
  const Routing routing = route_best(kTutelScores, 2, 3);
  EXPECT_THAT(routing.count, ElementsAre(6, 4, 2));
  const std::vector<GoldenDrops> cases = {
      {{.factor = 1}, 4, {{4, 1, 0}, {5, 0, 0}}},
      {{.factor = 1, .order = DropOrder::kPriority}, 4, {{3, 0, 0}, {4, 1, 0}}},
      {{.factor = 0}, 6, {}},
      {{.factor = -1}, 4, {{4, 1, 0}, {5, 0, 0}}},
      {{.factor = 0.5}, 2, {{2, 0, 0}, {2, 1, 1}, {3, 0, 0}, {3, 1, 1}, {4, 1, 0}, {5, 0, 0}}}};
  for (const GoldenDrops& golden : cases) {
    const Plan plan = plan_of(routing, golden.rule);
    EXPECT_EQ(plan.capacity, golden.capacity) << golden.rule.factor;
    EXPECT_EQ(dropped(routing, plan), golden.drops) << golden.rule.factor;
    EXPECT_EQ(plan.over_capacity, static_cast<std::int64_t>(golden.drops.size()));
  }
  EXPECT_THAT(queue_places(routing, {}), ElementsAre(0, 1, 1, 0, 2, 2, 3, 3, 0, 5, 4, 1));
  EXPECT_THAT(queue_places(routing, {.order = DropOrder::kPriority}),
              ElementsAre(1, 2, 2, 0, 0, 1, 4, 3, 0, 5, 3, 1));
}

TEST(Capacity, RoundsRaisesAndAligns) {
  const CapacityCase at{.tokens = 10, .experts = 4, .top_k = 2, .fullest = 7};  // ceil(10/4) = 3
  EXPECT_EQ(capacity({.factor = 1.5}, at), 8);                                  // 2 * int(4.5)
  EXPECT_EQ(capacity({.factor = -1.5}, at), 7);
  EXPECT_EQ(capacity({.factor = -1}, at), 6);
  EXPECT_EQ(capacity({.factor = 0}, at), 7);
  EXPECT_EQ(capacity({.factor = 0, .alignment = 4}, at), 8);
  EXPECT_EQ(capacity({.factor = 1, .alignment = 4}, at), 8);
  EXPECT_EQ(capacity({.factor = 0.1, .minimum = 5, .alignment = 4}, at), 8);
  EXPECT_EQ(capacity({.factor = 1e300}, at), std::int64_t{2} << 40);
  EXPECT_EQ(capacity({.factor = 1}, {.tokens = 0, .experts = 4, .top_k = 2, .fullest = 0}), 0);
}

TEST(Capacity, RefusesWhatWouldOverflow) {
  const std::string huge = "9223372036854775807";
  expect_error(ErrorCode::kInvalid, {"alignment", huge},
               [&] { (void)parse_capacity_rule("alignment=" + huge); });
  expect_error(ErrorCode::kInvalid, {"minimum", huge},
               [&] { (void)parse_capacity_rule("minimum=" + huge); });
  expect_error(ErrorCode::kInvalid, {"0 experts"},
               [] { (void)capacity({.factor = 1}, {.tokens = 1, .experts = 0}); });
  const std::int64_t most = std::int64_t{1} << 40;
  EXPECT_EQ(capacity({.factor = 0, .alignment = most}, {.tokens = 1, .fullest = 1}), most);
}

// One table of the policies by name, and what each drops of four tokens where two are served.
TEST(Scenario, M13_UnknownPoliciesAreErrorsAndNamesMeanOneThing) {
  Routing routing{.tokens = 4,
                  .top_k = 1,
                  .expert = {0, 0, 0, 0},
                  .weight = {.1f, .2f, .8f, .4f},
                  .count = {4},
                  .priority = {4, 1, 2, 3}};
  const auto served = [&](const std::string& order) {
    const Plan plan = plan_of(routing, parse_capacity_rule("factor=0.5 seed=1 order=" + order));
    std::vector<int> tokens;
    for (int t = 0; t < 4; ++t) {
      if (plan.fate[static_cast<std::size_t>(t)] == Fate::kServed) tokens.push_back(t);
    }
    return tokens;
  };
  EXPECT_THAT(served("position"), ElementsAre(0, 1));
  EXPECT_THAT(served("priority"), ElementsAre(0, 3));
  EXPECT_THAT(served("weight"), ElementsAre(2, 3));
  EXPECT_EQ(served("seed").size(), 2u);
  for (const char* unknown : {"prob", "probs", "Position", ""}) {
    expect_error(ErrorCode::kInvalid, {"order", unknown, "position", "priority", "seed", "weight"},
                 [&] { return served(unknown); });
  }
  expect_error(ErrorCode::kInvalid, {"capacity_factor", "factor"},
               [] { return parse_capacity_rule("capacity_factor=1"); });
  expect_error(ErrorCode::kInvalid, {"factor", "1x"},
               [] { return parse_capacity_rule("factor=1x"); });
  expect_error(ErrorCode::kInvalid, {"factor"}, [] { return parse_capacity_rule("factor"); });
  expect_error(ErrorCode::kInvalid, {"twice"},
               [] { return parse_capacity_rule("factor=1,factor=2"); });
}

TEST(Scenario, M14_CapacityBeyondTheTokensAndOfNone) {
  const Routing routing = route_best(kTutelScores, 2, 3);
  EXPECT_EQ(plan_of(routing, {.factor = 100}).rows(), 12);
  EXPECT_EQ(plan_of(routing, {.factor = 100}).capacity, 400);
  const Plan none = plan_of(routing, {.factor = 0.1});
  EXPECT_EQ(none.capacity, 0);
  EXPECT_EQ(none.rows(), 0);
  EXPECT_EQ(none.over_capacity, 12);
  EXPECT_THAT(none.weight, Each(0.0f));
  const Plan least = plan_of(routing, {.factor = 0.1, .minimum = 2});
  EXPECT_EQ(least.capacity, 2);
  EXPECT_EQ(least.rows(), 6);
}

TEST(Plan, KeepsCountsBeforeDrops) {
  const Routing routing = route_best(kTutelScores, 2, 3);
  const Plan plan = plan_of(routing, {.factor = 0.5});
  EXPECT_THAT(plan.send_count, ElementsAre(2, 2, 2));
  EXPECT_THAT(routing.count, ElementsAre(6, 4, 2));
}

TEST(Plan, DropsBySeedWhateverRankHoldsTheToken) {
  std::mt19937_64 random(1);
  const Routing routing = random_routing(40, 2, 1, random);
  Routing reversed = routing;
  std::ranges::reverse(reversed.expert);
  std::ranges::reverse(reversed.weight);
  std::ranges::reverse(reversed.token);
  const CapacityRule rule{.factor = 0.5, .order = DropOrder::kSeed, .seed = 5};
  std::vector<Fate> fate = plan_of(reversed, rule).fate;
  std::ranges::reverse(fate);
  EXPECT_EQ(fate, plan_of(routing, rule).fate);
  EXPECT_NE(fate, plan_of(routing, rule, 1).fate);  // another step, another draw
}

// A placement on `ranks` ranks with random replicas, shards and gaps between slots.
PlacementLayout random_layout(int experts, int ranks, std::mt19937_64& random) {
  PlacementLayout layout{.epoch = random() % 100, .experts = experts, .ranks = ranks};
  std::vector<int> next(static_cast<std::size_t>(ranks), 0);
  for (int e = 0; e < experts; ++e) {
    const int replicas = 1 + static_cast<int>(random() % 3);
    for (int replica = 0; replica < replicas; ++replica) {
      const int shards = 1 + static_cast<int>(random() % 3);
      for (int shard = 0; shard < shards; ++shard) {
        const int rank = static_cast<int>(random() % static_cast<std::size_t>(ranks));
        int& slot = next[static_cast<std::size_t>(rank)];
        slot += static_cast<int>(random() % 2);
        layout.physical.push_back({e, rank, slot++, replica, shard, shards});
      }
    }
  }
  std::ranges::shuffle(layout.physical, random);
  layout.alive.assign(static_cast<std::size_t>(ranks), 1);
  for (std::size_t r = 1; r < layout.alive.size(); ++r) layout.alive[r] = random() % 4 != 0;
  return layout;
}

// The rows of choice i: those of the live replica that its first row names, one a shard.
void expect_rows_of_one_replica(const Routing& routing, const Placement& placement,
                                const Plan& plan, std::size_t i) {
  const auto shards = static_cast<std::size_t>(plan.shards);
  const auto physical = std::span(plan.physical).subspan(i * shards, shards);
  const auto row = std::span(plan.row).subspan(i * shards, shards);
  if (plan.fate[i] != Fate::kServed) {
    EXPECT_THAT(physical, Each(-1));
    EXPECT_THAT(row, Each(-1));
    EXPECT_EQ(plan.weight[i], 0);
    return;
  }
  const PhysicalExpert& first = placement.physical()[static_cast<std::size_t>(physical[0])];
  EXPECT_EQ(first.expert, routing.expert[i]);
  EXPECT_TRUE(placement.live(first.expert, first.replica));
  const auto parts = placement.replica(first.expert, first.replica);
  for (std::size_t s = 0; s < shards; ++s) {
    ASSERT_EQ(physical[s], s < parts.size() ? parts[s] : -1);
    ASSERT_EQ(row[s] >= 0, s < parts.size());
    if (row[s] < 0) continue;
    const auto at = static_cast<std::size_t>(physical[s]);
    EXPECT_GE(row[s], plan.send_first[at]);
    EXPECT_LT(row[s], plan.send_first[at + 1]);
    EXPECT_EQ(plan.choice[static_cast<std::size_t>(row[s])], static_cast<std::int64_t>(i));
  }
}

// Rows ascend by destination rank, physical expert and token, and each is of one choice.
void expect_order(const Placement& placement, const Plan& plan) {
  std::vector<std::tuple<int, std::size_t, std::int64_t>> order;
  for (std::size_t p = 0; p < plan.send_count.size(); ++p) {
    EXPECT_EQ(plan.send_first[p + 1] - plan.send_first[p], plan.send_count[p]);
    for (std::int64_t row = plan.send_first[p]; row < plan.send_first[p + 1]; ++row) {
      order.emplace_back(placement.physical()[p].rank, p,
                         plan.choice[static_cast<std::size_t>(row)] / plan.top_k);
    }
  }
  EXPECT_EQ(plan.send_first.back(), plan.rows());
  EXPECT_TRUE(std::ranges::is_sorted(order));
  EXPECT_EQ(std::set(order.begin(), order.end()).size(), order.size());
}

std::unique_ptr<ReplicaChooser> chooser_of(int kind, const Placement& placement) {
  if (kind == 0) return local_first_chooser();
  if (kind == 1) return even_split_chooser();
  std::vector<std::vector<double>> weight;
  for (std::int32_t e = 0; e < placement.experts(); ++e) {
    weight.emplace_back(static_cast<std::size_t>(placement.replicas(e)), 1.0 + e);
  }
  return weighted_chooser(std::move(weight));
}

TEST(Plan, GivesEveryServedChoiceItsRowsInOrder) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    const int experts = 1 + static_cast<int>(random() % 6);
    const int k = 1 + static_cast<int>(random() % static_cast<std::size_t>(experts));
    const Placement placement(random_layout(experts, 1 + static_cast<int>(random() % 5), random));
    const Routing routing = random_routing(random() % 20, experts, k, random);
    const CapacityRule rule{.factor = static_cast<double>(random() % 5) / 2 - 1,
                            .order = static_cast<DropOrder>(random() % 4),
                            .renormalize = static_cast<Renormalize>(random() % 2)};
    const auto chooser = chooser_of(round % 3, placement);
    const PlanInput input{routing, placement, rule, *chooser, 0};
    const Plan plan = make_plan(input);
    EXPECT_EQ(plan.epoch, placement.epoch());
    for (std::size_t i = 0; i < plan.fate.size(); ++i) {
      expect_rows_of_one_replica(routing, placement, plan, i);
    }
    expect_order(placement, plan);
    const auto fates = [&](Fate fate) { return std::ranges::count(plan.fate, fate); };
    EXPECT_EQ(fates(Fate::kOverCapacity), plan.over_capacity);
    EXPECT_EQ(fates(Fate::kUnreachable), plan.unreachable);
    if (rule.factor == 0) {
      EXPECT_EQ(plan.over_capacity, 0);
    }
    EXPECT_EQ(make_plan(input).digest, plan.digest);
  }
}

TEST(Plan, IsSignedByAllThatItHolds) {
  std::mt19937_64 random(3);
  const Routing routing = random_routing(12, 4, 2, random);
  const Placement placement =
      Placement::grid({.epoch = 4, .experts = 4, .ranks = 4, .replicas = 2});
  const auto chooser = even_split_chooser();
  const Plan plan = make_plan({routing, placement, {}, *chooser, 0});
  const auto other_chooser = local_first_chooser();
  const Plan by_other_chooser = make_plan({routing, placement, {}, *other_chooser, 0});
  EXPECT_NE(by_other_chooser.agreement, plan.agreement);
  const Plan of_other_rank = make_plan({routing, placement, {}, *chooser, 1});
  EXPECT_EQ(of_other_rank.agreement, plan.agreement);
  EXPECT_NE(of_other_rank.digest, plan.digest);
  const Plan of_other_epoch =
      make_plan({routing, placement.with_alive({1, 1, 1, 1}, 5), {}, *chooser, 0});
  EXPECT_NE(of_other_epoch.agreement, plan.agreement);
  Routing heavier = routing;
  const auto heavy = std::ranges::find_if(heavier.weight, [](float w) { return w > 0; });
  *heavy += 1;
  EXPECT_NE(make_plan({heavier, placement, {}, *chooser, 0}).digest, plan.digest);
}

TEST(Plan, ReroutesAroundDeadRanksAndSharesTheWeightOfTheRest) {
  // Expert 0 on ranks 0 and 1, expert 1 on rank 2, expert 2 on rank 0 and 2; ranks 1, 2 are dead.
  const Placement placement({.epoch = 9,
                             .experts = 3,
                             .ranks = 3,
                             .physical = {{0, 0, 0, 0}, {0, 1, 0, 1}, {1, 2, 0}, {2, 0, 1}},
                             .alive = {1, 0, 0}});
  Routing routing{.tokens = 3,
                  .top_k = 2,
                  .expert = {0, 1, 2, 0, 1, kNoExpert},
                  .weight = {.25f, .5f, .5f, .25f, 1, 0}};
  count_choices(routing, 3);
  const auto chooser = even_split_chooser();
  const Plan plan = make_plan({routing, placement, {}, *chooser, 0});
  EXPECT_THAT(plan.fate, ElementsAre(Fate::kServed, Fate::kUnreachable, Fate::kServed,
                                     Fate::kServed, Fate::kUnreachable, Fate::kNone));
  EXPECT_THAT(plan.weight, ElementsAre(.75f, 0, .5f, .25f, 0, 0));
  EXPECT_THAT(plan.send_count, ElementsAre(2, 1, 0, 0));
  EXPECT_EQ(plan.unreachable, 2);
  EXPECT_EQ(plan.rerouted, 2);
  expect_error(ErrorCode::kInvalid, {"rank 1", "dead", "epoch 9"}, [&] {
    return make_plan({routing, placement, {}, *chooser, 1});
  });
}

// Central differences of <c, plan.weight> by the weights; few of them, as they are of float32.
TEST(Plan, HasTheGradientOfSharedWeights) {
  std::mt19937_64 random(11);
  const Placement placement = Placement::grid({.experts = 4, .ranks = 4});
  const auto chooser = even_split_chooser();
  for (const Renormalize rule : {Renormalize::kUnreachable, Renormalize::kAll}) {
    Routing routing = random_routing(12, 4, 3, random);
    for (float& w : routing.weight) w = w == 0 ? 0 : w + 1;
    const auto plan_with = [&] {
      return make_plan({routing,
                        placement.with_alive({1, 1, 0, 1}, 1),
                        {.factor = 0.5, .renormalize = rule},
                        *chooser,
                        0});
    };
    std::vector<float> c(routing.weight.size());
    for (float& v : c) v = static_cast<float>(random() % 200) / 100 - 1;
    const std::vector<float> gradient = weight_gradient(plan_with(), routing, c);
    const auto value = [&] {
      const Plan plan = plan_with();
      return std::inner_product(c.begin(), c.end(), plan.weight.begin(), 0.0);
    };
    for (std::size_t i = 0; i < c.size(); ++i) {
      if (routing.expert[i] == kNoExpert) continue;
      const float weight = routing.weight[i];
      routing.weight[i] = weight + 0x1p-6f;
      const double above = value();
      routing.weight[i] = weight - 0x1p-6f;
      EXPECT_NEAR((above - value()) / 0x1p-5, gradient[i], 1e-3) << i;
      routing.weight[i] = weight;
    }
  }
}

TEST(ReceivePlan, PutsExpertsFirstThenSources) {
  // Two ranks, three experts here: rank 0 sends 2, 0, 1 and rank 1 sends 1, 0, 4.
  const ReceivePlan plan = make_receive_plan(std::vector<std::int64_t>{2, 0, 1, 1, 0, 4}, 2);
  EXPECT_EQ(plan.rows, 8);
  EXPECT_THAT(plan.segment, ElementsAre(0, 3, 3, 8));
  EXPECT_THAT(plan.first, ElementsAre(0, 3, 3, 2, 3, 4));
  EXPECT_THAT(make_receive_plan({}, 2).segment, ElementsAre(0));
  expect_error(ErrorCode::kInvalid, {"3 counts", "2 ranks"}, [] {
    return make_receive_plan(std::vector<std::int64_t>{1, 2, 3}, 2);
  });
  expect_error(ErrorCode::kInvalid, {"rank 1", "-1"}, [] {
    return make_receive_plan(std::vector<std::int64_t>{1, -1}, 2);
  });
}

TEST(Routing, IsRefusedByNameWhereItIsWrong) {
  const Routing good = route_best(kTutelScores, 2, 3);
  validate(good);
  const auto refused = [&](const std::vector<std::string>& facts, auto spoil) {
    Routing bad = good;
    spoil(bad);
    expect_error(ErrorCode::kInvalid, facts, [&] { return plan_of(bad, {}); });
  };
  refused({"choice 1 of token 2", "expert 3 of 3"}, [](Routing& r) { r.expert[5] = 3; });
  refused({"choice 0 of token 1", "nan"}, [](Routing& r) { r.weight[2] = NAN; });
  refused({"token 3", "expert 0 twice"}, [](Routing& r) { r.expert[7] = 0; });
  refused({"token 0", "no expert", "0.3"}, [](Routing& r) { r.expert[1] = kNoExpert; });
  refused({"count of expert 2", "9"}, [](Routing& r) { r.count[2] = 9; });
  refused({"weight", "11", "12"}, [](Routing& r) { r.weight.pop_back(); });
  refused({"priority of token 4"}, [](Routing& r) { r.priority[4] = NAN; });
}

}  // namespace
}  // namespace motley::moe
