// Shows that every gradient of the reference layer is the derivative of its objective: against
// central differences over all rules, against high precision, by hand, and by additivity.
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <tuple>

#include "moe/reference_layer.h"
#include "test/moe/layer_cases.h"
#include "test/moe/layer_vectors.h"

namespace motley::moe {
namespace {

using ::testing::Combine;
using ::testing::Each;
using ::testing::Values;

constexpr std::size_t kTokens = 4;
constexpr std::size_t kWidth = 3;
constexpr double kStep = 2e-4;  // balances h^4 truncation and 1e-16 / h rounding

struct Case {
  ReferenceLayer layer;
  Numbers x, dy;

  // <dy, y> + balance_loss: any task loss whose derivative at y is dy.
  double objective() const {
    const Forward result = layer.forward(x);
    return std::inner_product(dy.begin(), dy.end(), result.y.begin(),
                              result.saved.routing.balance_loss);
  }

  // The smallest distance to where the objective is not smooth: a change of choice or a ReLU's
  // kink.
  double margin() const {
    const Saved saved = layer.forward(x).saved;
    double least = std::numeric_limits<double>::infinity();
    if (layer.options().activation == Activation::kRelu) {
      for (const double z : saved.hidden) least = std::min(least, std::abs(z));
    }
    const auto experts = static_cast<std::size_t>(layer.options().experts);
    for (std::size_t t = 0; t < kTokens; ++t) {
      Numbers p(&saved.routing.probability[t * experts],
                &saved.routing.probability[t * experts] + experts);
      std::ranges::sort(p, std::greater());
      for (std::size_t e = 0; e + 1 < experts; ++e)
        least = std::min(least, std::log(p[e] / p[e + 1]));
    }
    return least;
  }
};

// Seeds are tried in order until nothing within reach of a step changes its piece.
Case smooth_case(const LayerOptions& options) {
  for (std::uint64_t seed = 1;; ++seed) {
    std::mt19937_64 random(seed);
    ReferenceLayer layer = random_layer(options, random);
    Case result{.layer = std::move(layer),
                .x = random_numbers(kTokens * kWidth, random),
                .dy = random_numbers(kTokens * kWidth, random)};
    if (result.margin() > 20 * kStep) return result;
  }
}

// d(objective)/d(place), from four values: error of order h^4.
double central_difference(const Case& c, double& place) {
  const double middle = place;
  const auto at = [&](double offset) {
    place = middle + offset;
    return c.objective();
  };
  const double near = at(kStep) - at(-kStep);
  const double far = at(2 * kStep) - at(-2 * kStep);
  place = middle;
  return (8 * near - far) / (12 * kStep);
}

void expect_derivative(double got, double want, const std::string& what) {
  // Relative 1e-6; the rounding of an objective near 1 gives 1e-16 / kStep, far under 1e-11.
  EXPECT_NEAR(got, want, 1e-6 * std::abs(want) + 1e-11) << what;
}

using Rules = std::tuple<Activation, int, GateWeight, BalanceLoss>;
class ReferenceGradient : public ::testing::TestWithParam<Rules> {};

TEST_P(ReferenceGradient, IsTheCentralDifference) {
  const auto [activation, top_k, weight, balance] = GetParam();
  Case c = smooth_case({.width = kWidth,
                        .hidden = 4,
                        .experts = 4,
                        .top_k = top_k,
                        .activation = activation,
                        .weight = weight,
                        .balance = balance,
                        .balance_scale = 0.7});
  const Gradients gradients = c.layer.backward(c.layer.forward(c.x).saved, c.dy);
  for (std::size_t i = 0; i < c.x.size(); ++i) {
    expect_derivative(gradients.dx[i], central_difference(c, c.x[i]), "x " + std::to_string(i));
  }
  for (const ParameterInfo& info : c.layer.parameters()) {
    for (std::size_t i = 0; i < info.count; ++i) {
      expect_derivative(info.of(std::span<const double>(gradients.parameters))[i],
                        central_difference(c, info.of(c.layer.values())[i]),
                        info.name + " " + std::to_string(i));
    }
  }
}

// k = 1: the first choice alone. k = 2: some are left out. k = 4: all experts, as a dense mixture.
INSTANTIATE_TEST_SUITE_P(Rules, ReferenceGradient,
                         Combine(Values(Activation::kRelu, Activation::kGelu, Activation::kSilu),
                                 Values(1, 2, 4),
                                 Values(GateWeight::kSoftmax, GateWeight::kNormalized),
                                 Values(BalanceLoss::kNone, BalanceLoss::kFirstChoice,
                                        BalanceLoss::kAllChoices, BalanceLoss::kImportance)));

TEST(ReferenceGradientVectors, AreThoseWorkedByHand) {
  const ReferenceLayer layer = layer_by_hand(2);
  const Forward result = layer.forward(kXByHand);
  const Gradients gradients = layer.backward(result.saved, Numbers{1, 1});
  const auto expect = [&](const std::string& name, const Numbers& want) {
    expect_near(get(layer, name, gradients.parameters), want, 1e-14, name);
  };
  // The weights' gradients are <dy, output> = 3 and 8; their mean under p is 4.25.
  expect("gate", {.75 * -1.25, .75 * -1.25 * 2, .25 * 3.75, .25 * 3.75 * 2});
  expect("expert.0.w1", {1.5, 3, 0, 0});
  expect("expert.0.b1", {1.5, 0});
  expect("expert.0.w2", {.75, 0, .75, 0});
  expect("expert.0.b2", {.75, .75});
  expect("expert.1.w1", {.75, 1.5, 0, 0});
  expect("expert.1.b1", {.75, 0});
  expect("expert.1.w2", {.75, 0, .75, 0});
  expect("expert.1.b2", {.25, .25});
  expect_near(gradients.dx, Numbers{1.5 + .75 - .75 * 1.25 * std::log(3.0), .75}, 1e-14, "dx");
}

TEST(ReferenceGradientVectors, AreThoseOfHighPrecision) {
  for (const LayerVector& vector : layer_vectors()) {
    SCOPED_TRACE(vector.name);
    const ReferenceLayer layer = vector_layer(vector);
    const Gradients gradients = layer.backward(layer.forward(vector_x()).saved, vector_dy());
    expect_near(gradients.dx, vector.dx, 1e-14, "dx");
    expect_near(get(layer, "gate", gradients.parameters), vector.dgate, 1e-14, "gate");
    const std::size_t gate = layer.parameter("gate").count;
    const std::size_t slot = layer.parameter("expert.1.w1").first - gate;
    for (std::size_t e = 0; e < 4; ++e) {
      const auto part = std::span(gradients.parameters).subspan(gate + e * slot, slot);
      EXPECT_NEAR(std::inner_product(part.begin(), part.end(), part.begin(), 0.0),
                  vector.slot_squares[e], 1e-13)
          << "expert " << e;
    }
    double moment = 0;
    for (std::size_t i = 0; i < gradients.parameters.size(); ++i) {
      moment += gradients.parameters[i] * static_cast<double>(i % 7 + 1);
    }
    EXPECT_NEAR(moment, vector.moment, 1e-13);
  }
}

TEST(ReferenceGradientRules, OfABatchIsTheSumOverItsTokens) {
  std::mt19937_64 random(11);
  const ReferenceLayer layer =
      random_layer({.width = kWidth, .hidden = 5, .experts = 4, .top_k = 2}, random);
  const Numbers x = random_numbers(6 * kWidth, random), dy = random_numbers(6 * kWidth, random);
  const Gradients together = layer.backward(layer.forward(x).saved, dy);
  Numbers sum(layer.values().size(), 0.0), dx;
  for (std::size_t t = 0; t < 6; ++t) {
    const Forward one = layer.forward(std::span(x).subspan(t * kWidth, kWidth));
    const Gradients part = layer.backward(one.saved, std::span(dy).subspan(t * kWidth, kWidth));
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part.parameters[i];
    dx.insert(dx.end(), part.dx.begin(), part.dx.end());
  }
  expect_near(together.parameters, sum, 1e-14, "parameters");
  EXPECT_EQ(together.dx, dx);
}

TEST(ReferenceGradientRules, IsZeroForAnExpertThatNoTokenChose) {
  const LayerVector& vector = layer_vectors()[0];
  ASSERT_EQ(vector.count[1], 0);
  const ReferenceLayer layer = vector_layer(vector);
  const Gradients gradients = layer.backward(layer.forward(vector_x()).saved, vector_dy());
  for (const char* part : {"w1", "b1", "w2", "b2"}) {
    EXPECT_THAT(get(layer, std::string("expert.1.") + part, gradients.parameters), Each(0.0));
    EXPECT_THAT(get(layer, std::string("expert.2.") + part, gradients.parameters),
                ::testing::Contains(::testing::Ne(0.0)));
  }
}

TEST(ReferenceGradientRules, OneExpertIsAPlainNetworkWhoseGateLearnsNothing) {
  std::mt19937_64 random(12);
  for (const auto weight : {GateWeight::kSoftmax, GateWeight::kNormalized}) {
    const ReferenceLayer layer =
        random_layer({.width = kWidth, .hidden = 5, .experts = 1, .weight = weight}, random);
    const Numbers x = random_numbers(3 * kWidth, random);
    const Forward result = layer.forward(x);
    EXPECT_EQ(result.y, result.saved.expert_output);
    const Gradients gradients = layer.backward(result.saved, x);
    EXPECT_THAT(get(layer, "gate", gradients.parameters), Each(0.0));
    EXPECT_THAT(gradients.dx, ::testing::Contains(::testing::Ne(0.0)));
  }
}

TEST(ReferenceGradientRules, DbalanceScalesTheBalanceLossAlone) {
  std::mt19937_64 random(13);
  LayerOptions options{
      .width = kWidth, .hidden = 4, .experts = 3, .top_k = 2, .balance = BalanceLoss::kImportance};
  const ReferenceLayer layer = random_layer(options, random);
  const Numbers x = random_numbers(kTokens * kWidth, random), dy = random_numbers(x.size(), random);
  const Saved saved = layer.forward(x).saved;
  const Numbers without = layer.backward(saved, dy, 0).parameters;
  const Numbers with = layer.backward(saved, dy, 1).parameters;
  const Numbers thrice = layer.backward(saved, dy, 3).parameters;
  Numbers expected(with.size());
  for (std::size_t i = 0; i < with.size(); ++i)
    expected[i] = without[i] + 3 * (with[i] - without[i]);
  expect_near(thrice, expected, 1e-14, "parameters");
  EXPECT_NE(with, without);

  options.balance = BalanceLoss::kNone;
  ReferenceLayer plain(options);
  std::ranges::copy(layer.values(), plain.values().begin());
  EXPECT_EQ(plain.backward(plain.forward(x).saved, dy).parameters, without);
}

}  // namespace
}  // namespace motley::moe
