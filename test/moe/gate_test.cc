// What all gates promise: agreement with the reference, the same routing in whatever batch and
// order, errors that name what is wrong.
#include "moe/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "moe/plan.h"
#include "moe/reference/gate.h"
#include "test/moe/gates.h"
#include "test/moe/routings.h"
#include "test/support/errors.h"

namespace motley::moe {
namespace {

using test::expect_error;
using ::testing::Each;
using ::testing::ElementsAre;

// The gate of the reference layer with the same options, and the same numbers.
struct ReferenceCase {
  const char* gate;
  GateWeight weight;
  BalanceLoss balance;
};

void expect_reference(const ReferenceCase& reference) {
  std::mt19937_64 random(9);
  const auto gate = random_gate(reference.gate, random);
  const GateBatch batch(*gate, 20, random);
  const std::vector<double> x(batch.x.begin(), batch.x.end());
  const std::vector<double> g(gate->parameters().begin(), gate->parameters().end());
  const LayerOptions options{.width = 5,
                             .hidden = 1,
                             .experts = 6,
                             .top_k = gate->options().top_k,
                             .weight = reference.weight,
                             .balance = reference.balance,
                             .balance_scale = 0.5};
  const ReferenceRouting want = reference::gate_forward(options, g, x);
  const GateForward got = gate->forward(batch.input());
  EXPECT_EQ(got.routing.expert, want.expert);
  EXPECT_EQ(got.routing.count, want.count);
  for (std::size_t i = 0; i < want.weight.size(); ++i) {
    EXPECT_NEAR(got.saved.weight[i], want.weight[i], 1e-14);
    EXPECT_EQ(got.routing.weight[i], static_cast<float>(got.saved.weight[i]));
  }
  EXPECT_NEAR(gate->losses(got.statistics).total(), want.balance_loss, 1e-13);

  const std::vector<float> c = coarse_numbers(want.weight.size(), random);
  const std::vector<double> dlogits =
      reference::gate_backward(options, want, {{c.begin(), c.end()}, 1});
  std::vector<float> dg(g.size(), 0.0f);
  std::vector<float> dx(x.size(), 0.0f);
  gate->backward(batch.input(), got, {.dweight = c, .statistics = got.statistics}, {dg, dx});
  for (std::size_t i = 0; i < dg.size(); ++i) {
    double sum = 0;
    for (std::size_t t = 0; t < 20; ++t) sum += dlogits[t * 6 + i / 5] * x[t * 5 + i % 5];
    EXPECT_NEAR(dg[i], sum, 1e-6) << i;
  }
  for (std::size_t i = 0; i < dx.size(); ++i) {
    double sum = 0;
    for (std::size_t e = 0; e < 6; ++e) sum += dlogits[i / 5 * 6 + e] * g[e * 5 + i % 5];
    EXPECT_NEAR(dx[i], sum, 1e-6) << i;
  }
}

TEST(Gate, AgreesWithTheReference) {
  expect_reference({"width=5 experts=6 top_k=2", GateWeight::kSoftmax, BalanceLoss::kNone});
  expect_reference({"width=5 experts=6 top_k=3 normalize=chosen loss.first_choice=0.5",
                    GateWeight::kNormalized, BalanceLoss::kFirstChoice});
  expect_reference({"width=5 experts=6 top_k=2 loss.all_choices=0.5", GateWeight::kSoftmax,
                    BalanceLoss::kAllChoices});
  expect_reference({"width=5 experts=6 top_k=2 normalize=chosen loss.importance=0.5",
                    GateWeight::kNormalized, BalanceLoss::kImportance});
}

// Logits that are the logarithms of scores give the scores.
TEST(GoldenVector, G2_DropsOfAGatesRoutingAreTutels) {
  const auto gate = make_gate({.width = 3, .experts = 3, .top_k = 2});
  for (std::size_t e = 0; e < 3; ++e) gate->parameters()[e * 3 + e] = 1;
  std::vector<float> x;
  for (const std::vector<float>& scores : kTutelScores) {
    for (const float s : scores) x.push_back(std::log(s));
  }
  const Routing routing = gate->forward({.x = x}).routing;
  EXPECT_EQ(routing.expert, route_best(kTutelScores, 2, 3).expert);
  EXPECT_THAT(queue_places(routing, {}), ElementsAre(0, 1, 1, 0, 2, 2, 3, 3, 0, 5, 4, 1));
  EXPECT_THAT(queue_places(routing, {.order = DropOrder::kPriority}),
              ElementsAre(1, 2, 2, 0, 0, 1, 4, 3, 0, 5, 3, 1));
}

class EveryGate : public ::testing::TestWithParam<std::string> {
 protected:
  std::mt19937_64 random_{8};
  std::unique_ptr<Gate> gate_ = random_gate(GetParam(), random_);
  std::size_t k() const { return static_cast<std::size_t>(gate_->options().top_k); }
  // Whether others' tokens matter in training, as is the kind's purpose.
  bool by_batch() const {
    return gate_->options().kind == GateKind::kBase ||
           gate_->options().kind == GateKind::kTopologyLimited;
  }
};

TEST_P(EveryGate, MakesAValidRouting) {
  for (const GateMode mode : {GateMode::kTrain, GateMode::kEvaluate}) {
    for (const std::size_t tokens : {0, 1, 13}) {
      const GateBatch batch(*gate_, tokens, random_);
      const GateForward gated = gate_->forward(batch.input(mode));
      validate(gated.routing);
      EXPECT_EQ(gated.routing.tokens, tokens);
      EXPECT_EQ(gated.statistics.tokens(), static_cast<double>(tokens));
    }
  }
}

TEST_P(EveryGate, M20_HasNoLossAndNoGradientWithoutTokens) {
  const GateBatch batch(*gate_, 0, random_);
  const GateForward gated = gate_->forward(batch.input());
  EXPECT_EQ(gate_->losses(gated.statistics).total(), 0);
  std::vector<float> parameters(gate_->parameters().size(), 0.0f);
  gate_->backward(batch.input(), gated, {.dweight = {}, .statistics = gated.statistics},
                  {parameters, {}});
  EXPECT_THAT(parameters, Each(0.0f));
}

// A token is routed alike alone, among others, and in another order: by its id, not its place.
TEST_P(EveryGate, M27_RoutesATokenAlikeInWhateverBatch) {
  const GateMode mode = by_batch() ? GateMode::kEvaluate : GateMode::kTrain;
  const GateBatch batch(*gate_, 13, random_);
  const Routing whole = gate_->forward(batch.input(mode)).routing;
  for (std::size_t first = 0; first < 13; first += 3) {
    const std::size_t count = std::min<std::size_t>(3, 13 - first);
    const Routing part = gate_->forward(batch.part(first, count, mode)).routing;
    for (std::size_t i = 0; i < part.expert.size(); ++i) {
      EXPECT_EQ(part.expert[i], whole.expert[first * k() + i]);
      EXPECT_EQ(part.weight[i], whole.weight[first * k() + i]);
    }
  }
}

TEST_P(EveryGate, M34_GivesTheSameBitsTwentyTimes) {
  const GateBatch batch(*gate_, 13, random_);
  const std::vector<float> c = coarse_numbers(13 * k(), random_);
  const auto run = [&] {
    const GateForward gated = gate_->forward(batch.input());
    std::vector<float> numbers = gated.routing.weight;
    std::vector<float> parameters(gate_->parameters().size(), 0.0f);
    std::vector<float> dx(batch.x.size(), 0.0f);
    gate_->backward(batch.input(), gated, {.dweight = c, .statistics = gated.statistics},
                    {parameters, dx});
    numbers.insert(numbers.end(), parameters.begin(), parameters.end());
    numbers.insert(numbers.end(), dx.begin(), dx.end());
    return numbers;
  };
  const std::vector<float> first = run();
  for (int i = 1; i < 20; ++i) ASSERT_EQ(run(), first) << "repeat " << i;
}

// What nobody chose has no gradient that counts, even if a buffer holds nothing sensible there.
TEST_P(EveryGate, M23_ReadsNoGradientOfPlacesWithoutAChoice) {
  const GateBatch batch(*gate_, 13, random_);
  const GateForward gated = gate_->forward(batch.input());
  const auto gradient = [&](float nothing) {
    std::vector<float> dweight(13 * k(), 0.5f);
    for (std::size_t i = 0; i < dweight.size(); ++i) {
      if (gated.routing.expert[i] == kNoExpert) dweight[i] = nothing;
    }
    std::vector<float> dx(batch.x.size(), 0.0f);
    std::vector<float> parameters(gate_->parameters().size(), 0.0f);
    gate_->backward(batch.input(), gated, {.dweight = dweight, .statistics = gated.statistics},
                    {parameters, dx});
    return std::pair(parameters, dx);
  };
  EXPECT_EQ(gradient(NAN), gradient(0));
}

// Weights are computed in float64 and rounded once, to float32.
TEST_P(EveryGate, M36_RoundsWeightsOnce) {
  const GateBatch batch(*gate_, 13, random_);
  const GateForward gated = gate_->forward(batch.input());
  for (std::size_t t = 0; t < 13; ++t) {
    double sum = 0;
    for (std::size_t i = t * k(); i < (t + 1) * k(); ++i) {
      EXPECT_EQ(gated.routing.weight[i], static_cast<float>(gated.saved.weight[i]));
      sum += gated.saved.weight[i];
    }
    if (gate_->options().normalize == GateNormalize::kChosen) {
      EXPECT_NEAR(sum, gate_->options().weight_scale, 1e-14);
    }
  }
}

// Losses and their gradients know nothing of capacity: what is dropped counts.
TEST_P(EveryGate, M16_CountsChoicesBeforeDrops) {
  const GateBatch batch(*gate_, 13, random_);
  const GateForward gated = gate_->forward(batch.input());
  const auto chooser = even_split_chooser();
  const Placement placement = Placement::grid({.experts = 6, .ranks = 1});
  const Plan plan = make_plan({gated.routing, placement, {.factor = 0.1}, *chooser});
  EXPECT_EQ(plan.rows(), 0);
  EXPECT_GT(plan.over_capacity, 0);
  const auto counts = gated.statistics.choice_count();
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0.0),
            static_cast<double>(plan.over_capacity));
}

TEST_P(EveryGate, NamesNumbersThatAreNotFinite) {
  if (gate_->options().kind == GateKind::kHash) return;
  GateBatch batch(*gate_, 4, random_);
  for (const float bad : {NAN, std::numeric_limits<float>::infinity()}) {
    const float before = batch.x[12];
    batch.x[12] = bad;
    expect_error(ErrorCode::kInvalid, {"token 2, column 2"},
                 [&] { return gate_->forward(batch.input()); });
    batch.x[12] = before;
    for (const ParameterInfo& part : gate_->layout()) {
      float& parameter = gate_->parameters()[part.first];
      const float good = parameter;
      parameter = bad;
      // A temperature is cut at its limit, infinity too.
      if (part.name != "gate.temperature" || std::isnan(bad)) {
        expect_error(ErrorCode::kInvalid, {part.name + "[0]"},
                     [&] { return gate_->forward(batch.input()); });
      }
      parameter = good;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryGate, ::testing::ValuesIn(kGates));

// Two ranks, each of which sends all its tokens to an expert of its own: even use, though neither
// rank's own counts are.
TEST(Scenario, M21_BalanceIsOfTheCountsOfAllRanks) {
  const auto gate =
      make_gate({.width = 2, .experts = 2, .losses = {.first_choice = 1, .importance = 1}});
  for (std::size_t e = 0; e < 2; ++e) gate->parameters()[e * 2 + e] = 4;
  const std::vector<float> left = {1, 0, 1, 0};
  const std::vector<float> right = {0, 1, 0, 1};
  BalanceStatistics all = gate->forward({.x = left}).statistics;
  EXPECT_GT(gate->losses(all).first_choice, 1.9);
  EXPECT_GT(gate->losses(all).importance, 0.9);
  all.add(gate->forward({.x = right}).statistics);
  EXPECT_NEAR(gate->losses(all).first_choice, 1, 1e-12);
  EXPECT_NEAR(gate->losses(all).importance, 0, 1e-12);
  EXPECT_THROW(all.add(BalanceStatistics(3)), Error);
}

TEST(Scenario, M24_TheBiasMovesOncePerStepAndKeepsItsMean) {
  const auto bias_after = [](BiasMean mean, std::vector<double> counts) {
    const auto gate = make_gate({.width = 1,
                                 .experts = 4,
                                 .score = GateScore::kSigmoid,
                                 .bias_rate = 0.25,
                                 .bias_mean = mean});
    BalanceStatistics sums(4);  // of two micro-batches
    for (int i = 0; i < 2; ++i) {
      BalanceStatistics micro(4);
      std::ranges::copy(counts, micro.choice_count().begin());
      sums.add(micro);
    }
    gate->end_step(sums);
    return std::vector<float>(gate->state().begin(), gate->state().end());
  };
  EXPECT_THAT(bias_after(BiasMean::kFree, {5, 1, 1, 1}), ElementsAre(-.25f, .25f, .25f, .25f));
  EXPECT_THAT(bias_after(BiasMean::kZero, {5, 1, 1, 1}), ElementsAre(-.375f, .125f, .125f, .125f));
  EXPECT_THAT(bias_after(BiasMean::kFree, {0, 2, 2, 4}), ElementsAre(.25f, 0, 0, -.25f));
  EXPECT_THAT(bias_after(BiasMean::kFree, {0, 0, 0, 0}), Each(0.0f));
  // A mean of ten ones in tenths is below 1.
  std::unique_ptr<Gate> even = make_gate({.width = 1, .experts = 10, .bias_rate = .25});
  BalanceStatistics ones(10);
  std::ranges::fill(ones.choice_count(), 1.0);
  even->end_step(ones);
  EXPECT_THAT(std::vector<float>(even->state().begin(), even->state().end()), Each(0.0f));
  EXPECT_THROW(make_gate({.width = 1, .experts = 4})->end_step(BalanceStatistics(3)), Error);
}

TEST(GateOptions, ThatAreUnknownOrUnreadAreErrors) {
  const auto refused = [](const std::string& text, const std::vector<std::string>& facts) {
    SCOPED_TRACE(text);
    expect_error(ErrorCode::kInvalid, facts, [&] { return parse_gate_options(text); });
  };
  const std::string sizes = "width=4 experts=4 ";
  refused(sizes + "topk=2", {"topk", "top_k"});
  refused(sizes + "kind=switch", {"switch", "prototypes", "topology_limited"});
  refused(sizes + "top_k=5", {"top_k is 5", "[1, 4]"});
  refused(sizes + "jitter=nan", {"jitter"});
  refused(sizes + "projection=2", {"projection", "cosine"});
  refused(sizes + "logits=cosine", {"projection is 0"});
  refused(sizes + "groups=3", {"4 experts", "3 groups"});
  refused(sizes + "groups=2 top_k=3", {"top_k is 3", "2 experts"});
  refused(sizes + "kind=prototypes top_k=3", {"4 experts", "3 groups"});
  refused(sizes + "kind=base top_k=2", {"top_k is 2", "[1, 1]"});
  refused(sizes + "kind=base loss.importance=1", {"base", "loss.importance"});
  refused(sizes + "kind=hash jitter=0.1", {"hash", "jitter"});
  refused(sizes + "kind=sam gumbel=all", {"sam", "gumbel"});
  refused(sizes + "threshold=0.5", {"top_k", "threshold"});
  refused(sizes + "far_share=0.5", {"top_k", "far_share"});
  refused(sizes + "noise_scale=2", {"noise_scale", "without noise"});
  refused(sizes + "gumbel=second", {"second", "top_k is 1"});
  refused(sizes + "gumbel=all bias_rate=1", {"gumbel", "bias_rate"});
  refused(sizes + "loss.load=1", {"loss.load", "noise"});
  refused(sizes + "loss.z=-1", {"z", "-1"});
  refused(sizes + "bias_mean=zero", {"bias_mean", "bias_rate"});
  refused(sizes + "group_score=sum", {"group_score"});
  EXPECT_EQ(parse_gate_options(sizes + "kind=sam groups=2, top_k=2").kind, GateKind::kSam);
}

TEST(Gate, RefusesInputsOfWrongSizeAndIdsOutOfRange) {
  const auto gate = make_gate({.width = 2, .experts = 2});
  const std::vector<float> x(6);
  const std::vector<std::int64_t> two = {1, 2};
  expect_error(ErrorCode::kInvalid, {"5 numbers", "width 2"},
               [&] { return gate->forward({.x = std::span(x).first(5)}); });
  expect_error(ErrorCode::kInvalid, {"2 token ids", "3 tokens"},
               [&] { return gate->forward({.x = x, .token = two}); });
  const auto hash = make_gate({.kind = GateKind::kHash, .experts = 2});
  const std::vector<std::int32_t> negative = {3, -1};
  expect_error(ErrorCode::kInvalid, {"token 1", "-1"},
               [&] { return hash->forward({.vocabulary = negative}); });
  const auto limited =
      make_gate({.kind = GateKind::kTopologyLimited, .width = 2, .experts = 2, .top_k = 2});
  const std::vector<std::uint8_t> one = {1, 0};
  expect_error(ErrorCode::kInvalid, {"1 of them near", "2 near ones"},
               [&] { return limited->forward({.x = x, .near = one}); });
}

}  // namespace
}  // namespace motley::moe
