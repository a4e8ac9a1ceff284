// Shows that the reference gate chooses, weighs and counts as the published gates do, and that the
// activations and balance losses have their known values.
#include <gmock/gmock.h>

#include "moe/reference/expert.h"
#include "moe/reference/gate.h"
#include "test/moe/layer_cases.h"

namespace motley::moe {
namespace {

using reference::gate_forward;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

LayerOptions gate_options(int experts, int top_k, GateWeight weight = GateWeight::kSoftmax) {
  return {.width = experts, .hidden = 1, .experts = experts, .top_k = top_k, .weight = weight};
}

// With the identity as gate matrix, x = log(scores) has the softmax scores (whose rows sum to 1).
ReferenceRouting route_scores(const LayerOptions& options, const Numbers& scores) {
  const auto experts = static_cast<std::size_t>(options.experts);
  Numbers identity(experts * experts, 0.0);
  for (std::size_t e = 0; e < experts; ++e) identity[e * experts + e] = 1;
  Numbers x;
  for (const double score : scores) x.push_back(std::log(score));
  return gate_forward(options, identity, x);
}

// Scores of Tutel's drop example (its commit ac0e51b, re-derived): k = 2, 3 experts, 6 tokens.
const Numbers kTutelScores = {.6, .3,  .1,  .5, .2, .3, .7,  .2,  .1,
                              .4, .35, .25, .2, .7, .1, .45, .15, .4};

TEST(ReferenceGate, ChoosesAndCountsAsTutel) {
  const ReferenceRouting routing = route_scores(gate_options(3, 2), kTutelScores);
  EXPECT_EQ(routing.tokens, 6u);
  EXPECT_THAT(routing.expert, ElementsAre(0, 1, 0, 2, 0, 1, 0, 1, 1, 0, 0, 2));
  EXPECT_THAT(routing.count, ElementsAre(6, 4, 2));
  expect_near(routing.probability, kTutelScores, 1e-15, "probability");
  const Numbers weights = {.6, .3, .5, .3, .7, .2, .4, .35, .7, .2, .45, .4};
  expect_near(routing.weight, weights, 1e-15, "weight");
}

TEST(ReferenceGate, NormalizedWeightsOfATokenSumToOne) {
  const ReferenceRouting routing =
      route_scores(gate_options(3, 2, GateWeight::kNormalized), kTutelScores);
  const Numbers weights = {.6 / .9,  .3 / .9,   .5 / .8, .3 / .8, .7 / .9,   .2 / .9,
                           .4 / .75, .35 / .75, .7 / .9, .2 / .9, .45 / .85, .4 / .85};
  expect_near(routing.weight, weights, 1e-15, "weight");
}

TEST(ReferenceGate, BreaksTiesByTheLowerExpert) {
  // Equal everywhere; then the best two equal, behind each other and not in front.
  const LayerOptions options = gate_options(4, 2);
  EXPECT_THAT(route_scores(options, {.25, .25, .25, .25}).expert, ElementsAre(0, 1));
  EXPECT_THAT(route_scores(options, {.1, .4, .1, .4}).expert, ElementsAre(1, 3));
  EXPECT_THAT(route_scores(options, {.2, .3, .25, .25}).expert, ElementsAre(1, 2));
  EXPECT_THAT(route_scores(gate_options(4, 4), {.3, .2, .3, .2}).expert, ElementsAre(0, 2, 1, 3));
}

TEST(ReferenceGate, TellsLogitsApartWhoseProbabilitiesAreBothZero) {
  // exp(-800) and exp(-900) are 0 in float64; the second choice is still the better of the two.
  const ReferenceRouting routing = gate_forward({.width = 1, .hidden = 1, .experts = 3, .top_k = 2},
                                                Numbers{-900, 0, -800}, Numbers{1});
  EXPECT_THAT(routing.expert, ElementsAre(1, 2));
  EXPECT_THAT(routing.weight, ElementsAre(1, 0));
}

TEST(ReferenceGate, LogitsOfAThousandDoNotOverflow) {
  const ReferenceRouting routing = gate_forward({.width = 1, .hidden = 1, .experts = 2, .top_k = 2},
                                                Numbers{1000, 1000}, Numbers{1});
  EXPECT_THAT(routing.weight, ElementsAre(.5, .5));
}

TEST(ReferenceGate, NoTokensNoChoices) {
  const ReferenceRouting routing = route_scores(gate_options(3, 2), {});
  EXPECT_EQ(routing.tokens, 0u);
  EXPECT_THAT(routing.expert, IsEmpty());
  EXPECT_THAT(routing.count, ElementsAre(0, 0, 0));
}

double loss_of(BalanceLoss rule, int top_k, const Numbers& scores) {
  LayerOptions options = gate_options(2, top_k);
  options.balance = rule;
  options.balance_scale = 2;  // so that a scale left out or applied twice shows
  return route_scores(options, scores).balance_loss;
}

TEST(ReferenceGate, BalanceLossesOfOneTokenByHand) {
  const Numbers scores = {.75, .25};
  EXPECT_EQ(loss_of(BalanceLoss::kNone, 2, scores), 0);
  EXPECT_NEAR(loss_of(BalanceLoss::kFirstChoice, 2, scores), 2 * 1.5, 1e-14);  // 2 * (1 * .75)
  EXPECT_NEAR(loss_of(BalanceLoss::kAllChoices, 1, scores), 2 * 1.5, 1e-14);
  EXPECT_NEAR(loss_of(BalanceLoss::kAllChoices, 2, scores), 2 * 1.0, 1e-14);  // f = .5, .5
  EXPECT_NEAR(loss_of(BalanceLoss::kImportance, 2, scores), 2 * .25, 1e-14);  // (.25 / .5)^2
}

TEST(ReferenceGate, BalanceLossesAreLeastForEvenUse) {
  const Numbers even = {.75, .25, .25, .75};
  EXPECT_NEAR(loss_of(BalanceLoss::kFirstChoice, 1, even), 2 * 1.0, 1e-14);
  EXPECT_NEAR(loss_of(BalanceLoss::kAllChoices, 1, even), 2 * 1.0, 1e-14);
  EXPECT_NEAR(loss_of(BalanceLoss::kImportance, 1, even), 0, 1e-14);
  for (const auto rule : {BalanceLoss::kFirstChoice, BalanceLoss::kImportance}) {
    EXPECT_EQ(loss_of(rule, 1, {}), 0) << "no tokens";
  }
}

// 20-digit values of z Phi(z) and z / (1 + exp(-z)) from a series in 60-digit decimals.
TEST(ReferenceExpert, ActivationsHaveTheirKnownValues) {
  const auto at = [](Activation a, double z) { return reference::activate(a, z); };
  EXPECT_EQ(at(Activation::kRelu, 1.5), 1.5);
  EXPECT_EQ(at(Activation::kRelu, -1.5), 0);
  EXPECT_DOUBLE_EQ(at(Activation::kGelu, 1), 0.84134474606854294859);
  EXPECT_DOUBLE_EQ(at(Activation::kGelu, -1), -0.15865525393145705141);
  EXPECT_DOUBLE_EQ(at(Activation::kSilu, 1), 0.73105857863000487926);
  EXPECT_DOUBLE_EQ(at(Activation::kSilu, -1), -0.26894142136999512074);
  // Far out they are 0 or z, with slopes 0 and 1; exp() under- and overflows there.
  for (const auto a : {Activation::kRelu, Activation::kGelu, Activation::kSilu}) {
    EXPECT_EQ(at(a, 0), 0);
    EXPECT_EQ(at(a, 1000), 1000);
    EXPECT_EQ(at(a, -1000), 0);
    EXPECT_EQ(reference::activation_slope(a, 1000), 1);
    EXPECT_EQ(reference::activation_slope(a, -1000), 0);
  }
}

}  // namespace
}  // namespace motley::moe
