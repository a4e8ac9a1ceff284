// What each way of choosing is for, shown on small batches and by counting draws.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "moe/gate.h"
#include "moe/gate/auction.h"
#include "moe/gate/lots.h"
#include "moe/gate/score.h"
#include "test/moe/gates.h"

namespace motley::moe {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

TEST(Lots, AreInsideTheUnitIntervalForAllBits) {
  for (const std::uint64_t bits : {std::uint64_t{0}, ~std::uint64_t{0}}) {
    EXPECT_GT(gate::inside_unit(bits), 0.0);
    EXPECT_LT(gate::inside_unit(bits), 1.0);
  }
}

// A gate whose logits are x.
std::unique_ptr<Gate> identity_gate(const std::string& text) {
  std::unique_ptr<Gate> gate = make_gate(parse_gate_options(text));
  const auto experts = static_cast<std::size_t>(gate->options().experts);
  for (std::size_t e = 0; e < experts; ++e) gate->parameters()[e * experts + e] = 1;
  return gate;
}

std::vector<float> repeated(const std::vector<float>& row, std::size_t times) {
  std::vector<float> rows;
  for (std::size_t i = 0; i < times; ++i) rows.insert(rows.end(), row.begin(), row.end());
  return rows;
}

// How often each expert is choice j of many equal tokens that train.
std::vector<double> shares(const Gate& gate, const std::vector<float>& logits, std::size_t j) {
  constexpr std::size_t kTokens = 20000;
  const Routing routing = gate.forward({.x = repeated(logits, kTokens), .seed = 1}).routing;
  std::vector<double> share(logits.size(), 0.0);
  for (std::size_t t = 0; t < kTokens; ++t) {
    share[static_cast<std::size_t>(
        routing.expert[t * static_cast<std::size_t>(routing.top_k) + j])] += 1.0 / kTokens;
  }
  return share;
}

void expect_shares(const std::vector<double>& got, const std::vector<double>& want) {
  for (std::size_t e = 0; e < want.size(); ++e) {
    EXPECT_NEAR(got[e], want[e], 1e-9 + 4 * std::sqrt(want[e] * (1 - want[e]) / 20000)) << e;
  }
}

TEST(Gumbel, DrawsByTheSoftmaxOfTheLogits) {
  const std::vector<float> logits = {0, std::log(2.0f), std::log(5.0f)};  // 1/8, 2/8, 5/8
  const auto all = identity_gate("width=3 experts=3 top_k=1 gumbel=all");
  expect_shares(shares(*all, logits, 0), {1.0 / 8, 2.0 / 8, 5.0 / 8});
  const auto second = identity_gate("width=3 experts=3 top_k=2 gumbel=second");
  expect_shares(shares(*second, logits, 0), {0, 0, 1});
  expect_shares(shares(*second, logits, 1), {1.0 / 3, 2.0 / 3, 0});
}

TEST(Noise, HasTheDeviationThatIsAskedFor) {
  const auto gate = identity_gate("width=2 experts=2 noise=constant noise_scale=3");
  const std::vector<float> x(20000, 0.5f);
  const std::vector<double> noisy = gate->forward({.x = x, .seed = 2}).saved.noisy;
  double sum = 0, square = 0;
  for (const double n : noisy) {
    sum += (n - 0.5) / 20000;
    square += (n - 0.5) * (n - 0.5) / 20000;
  }
  EXPECT_NEAR(sum, 0, 4 * 1.5 / std::sqrt(20000));
  EXPECT_NEAR(square, 2.25, 4 * 2.25 * std::sqrt(2.0 / 20000));
  EXPECT_TRUE(gate->forward({.x = x, .mode = GateMode::kEvaluate}).saved.noisy.empty());
}

TEST(Jitter, MultipliesEachNumberByItsOwnFactorNearOne) {
  const auto gate = identity_gate("width=2 experts=2 jitter=0.25");
  const std::vector<float> x(2000, 1.0f);
  const std::vector<double> logits = gate->forward({.x = x, .seed = 2}).saved.logits;
  const auto [low, high] = std::ranges::minmax(logits);
  EXPECT_GE(low, 0.75);
  EXPECT_LT(low, 0.76);
  EXPECT_LE(high, 1.25);
  EXPECT_GT(high, 1.24);
  EXPECT_EQ(std::set(logits.begin(), logits.end()).size(), 2000u);
  EXPECT_THAT(gate->forward({.x = x, .mode = GateMode::kEvaluate}).saved.logits, Each(1.0));
}

TEST(RandomNumbers, DifferByStepSeedAndToken) {
  const auto gate = identity_gate("width=2 experts=2 noise=constant");
  const std::vector<float> x(4, 0.0f);
  const std::vector<std::int64_t> other = {7, 1};
  const auto noise = [&](GateInput input) {
    input.x = x;
    return gate->forward(input).saved.noisy;
  };
  const std::vector<double> first = noise({});
  EXPECT_NE(noise({.step = 1}), first);
  EXPECT_NE(noise({.seed = 1}), first);
  const std::vector<double> moved = noise({.token = other});
  EXPECT_NE(moved[0], first[0]);
  EXPECT_EQ(moved[2], first[2]);  // token 1, given as such
}

TEST(Bias, DecidesTheChoiceButNotTheWeight) {
  const auto gate = identity_gate("width=3 experts=3 score=sigmoid bias_rate=1");
  const std::vector<float> x = {2, 1, 0};
  gate->state()[2] = 0.5f;  // sigmoid: .88, .73, .5 + .5
  const Routing routing = gate->forward({.x = x}).routing;
  EXPECT_THAT(routing.expert, ElementsAre(2));
  EXPECT_FLOAT_EQ(routing.weight[0], 0.5f);
}

TEST(Groups, OpenByTheScoreThatIsAskedFor) {
  // Probabilities in sixteenths: groups (6, 0) (4, 3) (2, 1).
  const std::vector<float> x = {std::log(6.0f), -50, std::log(4.0f), std::log(3.0f),
                                std::log(2.0f), 0};
  const auto chosen = [&](const std::string& text) {
    return identity_gate("width=6 experts=6 top_k=2 " + text)->forward({.x = x}).routing.expert;
  };
  EXPECT_THAT(chosen(""), ElementsAre(0, 2));
  EXPECT_THAT(chosen("groups=3 group_score=best"), ElementsAre(0, 1));
  EXPECT_THAT(chosen("groups=3 group_score=best_two"), ElementsAre(2, 3));
  EXPECT_THAT(chosen("groups=3 group_score=sum"), ElementsAre(2, 3));
  EXPECT_THAT(chosen("groups=3 top_groups=2 group_score=best"), ElementsAre(0, 2));
  EXPECT_THAT(chosen("kind=sam groups=3"), ElementsAre(2, 3));
}

TEST(Sam, PenalisesBetterExpertsOfOtherGroups) {
  const std::vector<float> x = {std::log(6.0f), -50, std::log(4.0f), std::log(3.0f),
                                std::log(2.0f), 0};
  const auto gate = identity_gate("kind=sam width=6 experts=6 top_k=2 groups=3 loss.alignment=1");
  EXPECT_NEAR(gate->losses(gate->forward({.x = x}).statistics).alignment, 3.0 / 16, 1e-7);
}

TEST(Prototypes, ChooseTheBestOfEachGroup) {
  const auto gate = identity_gate("kind=prototypes width=4 experts=4 top_k=2");
  const std::vector<float> x = {0, 1, 5, 4};
  const Routing routing = gate->forward({.x = x}).routing;
  EXPECT_THAT(routing.expert, ElementsAre(1, 2));
  EXPECT_NEAR(routing.weight[0], 1 / (1 + std::exp(-1.0)), 1e-7);
  EXPECT_NEAR(routing.weight[1], 1 / (1 + std::exp(-1.0)), 1e-7);
}

TEST(DenseToSparse, ChoosesFewerAsTheTemperatureFalls) {
  const auto gate = identity_gate(
      "kind=dense_to_sparse width=4 experts=4 top_k=4 temperature=8 temperature_decay=0.25 "
      "temperature_floor=0.125 threshold=0.125");
  std::mt19937_64 random(4);
  const std::vector<float> x = coarse_numbers(400, random);
  const auto chosen = [&](std::int64_t step) {
    const Routing routing = gate->forward({.x = x, .step = step}).routing;
    for (std::size_t t = 0; t < 100; ++t) EXPECT_NE(routing.expert[t * 4], kNoExpert);
    return std::accumulate(routing.count.begin(), routing.count.end(), std::int64_t{0});
  };
  const std::int64_t dense = chosen(0), later = chosen(8), sparse = chosen(100);
  EXPECT_GT(dense, 380);
  EXPECT_LT(later, dense);
  EXPECT_LT(sparse, later);
  EXPECT_LT(sparse, 130);
  EXPECT_EQ(gate::temperature_at(gate->options(), 0), 8);
  EXPECT_EQ(gate::temperature_at(gate->options(), 100), 0.125);
}

TEST(TopologyLimited, LetsOnlyTheBestTokensLeave) {
  const auto gate = identity_gate("kind=topology_limited width=4 experts=4 top_k=2 far_share=0.25");
  const std::vector<std::uint8_t> near = {1, 1, 0, 0};
  // All but the last prefer far experts, the second most of all.
  const std::vector<float> x = {0, 1, 2, 3, 1, 0, 9, 3, 1, 2, 3, 0, 5, 0, 1, 0};
  const Routing training = gate->forward({.x = x, .near = near}).routing;
  EXPECT_THAT(training.expert, ElementsAre(1, 0, 2, 3, 1, 0, 0, 2));
  const Routing evaluation =
      gate->forward({.x = x, .mode = GateMode::kEvaluate, .near = near}).routing;
  EXPECT_THAT(evaluation.expert, ElementsAre(3, 2, 2, 3, 2, 1, 0, 2));
}

TEST(Hash, DependsOnTheVocabularyIdAloneAndIsEven) {
  const auto gate = make_gate(parse_gate_options("kind=hash experts=8 top_k=2"));
  std::vector<std::int32_t> ids(8000);
  std::iota(ids.begin(), ids.end(), 0);
  const Routing routing = gate->forward({.vocabulary = ids}).routing;
  for (const std::int64_t count : routing.count) EXPECT_NEAR(count, 2000, 160);  // 4 deviations
  EXPECT_THAT(routing.weight, Each(0.5f));
  const std::vector<std::int32_t> one = {77, 5, 77};
  const Routing again = gate->forward({.seed = 9, .step = 3, .vocabulary = one}).routing;
  EXPECT_THAT(again.expert,
              ElementsAre(routing.expert[154], routing.expert[155], routing.expert[10],
                          routing.expert[11], routing.expert[154], routing.expert[155]));
  const auto other = make_gate(parse_gate_options("kind=hash experts=8 top_k=2 hash_seed=1"));
  EXPECT_NE(other->forward({.vocabulary = ids}).routing.expert, routing.expert);
}

TEST(Cosine, IgnoresTheSizeOfATokenWithoutBias) {
  std::mt19937_64 random(2);
  const auto gate = random_gate("width=5 experts=6 logits=cosine projection=4", random);
  std::ranges::fill(gate->layout()[1].of(gate->parameters()), 0.0f);  // the projection's bias
  GateBatch batch(*gate, 4, random);
  const std::vector<double> before = gate->forward(batch.input()).saved.logits;
  for (float& number : batch.x) number *= 64;
  const std::vector<double> after = gate->forward(batch.input()).saved.logits;
  const double scale = std::exp(double{gate->layout()[3].of(gate->parameters())[0]});
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_NEAR(after[i], before[i], 1e-12);
    EXPECT_LE(std::abs(after[i]), scale * (1 + 1e-12));
  }
}

// The largest sum of values, by Kuhn and Munkres in O(n^3): rows get distinct columns.
double best_assignment(const std::vector<double>& value, std::size_t n) {
  std::vector<double> u(n + 1), v(n + 1);
  std::vector<std::size_t> row_of(n + 1), way(n + 1);
  for (std::size_t i = 1; i <= n; ++i) {
    row_of[0] = i;
    std::size_t column = 0;
    std::vector<double> least(n + 1, HUGE_VAL);
    std::vector<bool> used(n + 1, false);
    do {
      used[column] = true;
      std::size_t next = 0;
      double delta = HUGE_VAL;
      for (std::size_t j = 1; j <= n; ++j) {
        if (used[j]) continue;
        const std::size_t r = row_of[column];
        const double cost = -value[(r - 1) * n + j - 1] - u[r] - v[j];
        if (cost < least[j]) least[j] = cost, way[j] = column;
        if (least[j] < delta) delta = least[j], next = j;
      }
      for (std::size_t j = 0; j <= n; ++j) {
        if (used[j])
          u[row_of[j]] += delta, v[j] -= delta;
        else
          least[j] -= delta;
      }
      column = next;
    } while (row_of[column] != 0);
    for (; column != 0; column = way[column]) row_of[column] = row_of[way[column]];
  }
  return v[0];
}

double sum_of(const std::vector<double>& value, const std::vector<std::int32_t>& expert,
              std::size_t experts) {
  double sum = 0;
  for (std::size_t t = 0; t < expert.size(); ++t) {
    sum += value[t * experts + static_cast<std::size_t>(expert[t])];
  }
  return sum;
}

TEST(Base, GivesEveryExpertAsManyTokensAtNearlyTheBestSum) {
  std::mt19937_64 random(12);
  for (int round = 0; round < 5; ++round) {
    std::vector<double> value(64 * 64);
    for (double& v : value) v = static_cast<double>(random() >> 11) * 0x1p-53;
    const auto expert = gate::balanced_assignment(value, 64);
    EXPECT_EQ(std::set(expert.begin(), expert.end()).size(), 64u);
    EXPECT_GE(sum_of(value, expert, 64), best_assignment(value, 64) - 128e-4);
  }
}

// Tokens by token, all ways to fill the experts; sizes that divide, and not, and fewer tokens.
TEST(Base, IsBestAmongAllBalancedAssignments) {
  std::mt19937_64 random(13);
  for (const auto& [tokens, experts] :
       std::vector<std::pair<std::size_t, std::size_t>>{{6, 3}, {7, 3}, {8, 3}, {2, 4}, {5, 1}}) {
    std::vector<double> value(tokens * experts);
    for (double& v : value) v = static_cast<double>(random() % 1000) / 1000;
    std::vector<std::int32_t> trial(tokens);
    std::vector<std::size_t> count(experts);
    double best = -HUGE_VAL;
    const auto fill = [&](const auto& self, std::size_t t) -> void {
      if (t == tokens) {
        const bool even = std::ranges::all_of(count, [&](std::size_t c) {
          return c == tokens / experts || c == (tokens + experts - 1) / experts;
        });
        if (even) best = std::max(best, sum_of(value, trial, experts));
        return;
      }
      for (std::size_t e = 0; e < experts; ++e) {
        trial[t] = static_cast<std::int32_t>(e);
        ++count[e];
        self(self, t + 1);
        --count[e];
      }
    };
    fill(fill, 0);
    const auto got = gate::balanced_assignment(value, experts);
    EXPECT_GE(sum_of(value, got, experts), best - 1e-4 * static_cast<double>(tokens + experts));
    for (const std::int32_t e : got) ++count[static_cast<std::size_t>(e)];
    for (const std::size_t c : count) {
      EXPECT_GE(c, tokens / experts);
      EXPECT_LE(c, (tokens + experts - 1) / experts);
    }
  }
}

TEST(Base, BalancesInTrainingAndTakesTheBestInEvaluation) {
  const auto gate = identity_gate("kind=base width=4 experts=4");
  const std::vector<float> x = repeated({3, 2, 1, 0}, 40);
  EXPECT_THAT(gate->forward({.x = x}).routing.count, Each(10));
  EXPECT_THAT(gate->forward({.x = x, .mode = GateMode::kEvaluate}).routing.count,
              ElementsAre(40, 0, 0, 0));
}

}  // namespace
}  // namespace motley::moe
