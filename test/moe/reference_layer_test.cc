// Shows that the reference layer's output is the published equations', by vectors worked by hand
// and in high precision elsewhere, by a dense mixture, and by what must not change it; and its
// errors.
#include "moe/reference_layer.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "moe/reference/expert.h"
#include "test/moe/layer_cases.h"
#include "test/moe/layer_vectors.h"

namespace motley::moe {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(ReferenceLayer, GivesTheOutputWorkedByHand) {
  const ReferenceLayer layer = layer_by_hand(2);
  const Forward result = layer.forward(kXByHand);
  EXPECT_THAT(result.saved.hidden, ElementsAre(1, -1, 3, -1));
  EXPECT_THAT(result.saved.expert_output, ElementsAre(3, 0, 3, 5));
  expect_near(result.saved.routing.weight, Numbers{.75, .25}, 1e-15, "weight");
  expect_near(result.y, Numbers{3, 1.25}, 1e-15, "y");  // .75 (3, 0) + .25 (3, 5)

  expect_near(layer_by_hand(1).forward(kXByHand).y, Numbers{2.25, 0}, 1e-15, "y of k = 1");
}

TEST(ReferenceLayer, GivesTheOutputsOfHighPrecision) {
  for (const LayerVector& vector : layer_vectors()) {
    SCOPED_TRACE(vector.name);
    const Forward result = vector_layer(vector).forward(vector_x());
    EXPECT_THAT(result.saved.routing.expert, ElementsAreArray(vector.expert));
    EXPECT_THAT(result.saved.routing.count, ElementsAreArray(vector.count));
    EXPECT_NEAR(result.saved.routing.balance_loss, vector.balance_loss, 1e-14);
    expect_near(result.y, vector.y, 1e-14, "y");
  }
}

// sum over all experts of softmax(G x)_e f_e(x), term by term.
Numbers dense_mixture(const ReferenceLayer& layer, const Numbers& x) {
  const auto& options = layer.options();
  const auto d = static_cast<std::size_t>(options.width);
  const auto h = static_cast<std::size_t>(options.hidden);
  const Numbers gate = get(layer, "gate", layer.values());
  Numbers y(x.size(), 0.0);
  for (std::size_t t = 0; t < x.size() / d; ++t) {
    const auto affine = [&](const Numbers& m, const double* v, std::size_t i, std::size_t n) {
      return std::inner_product(v, v + n, &m[i * n], 0.0);
    };
    double partition = 0;
    for (std::size_t e = 0; e < gate.size() / d; ++e) {
      partition += std::exp(affine(gate, &x[t * d], e, d));
    }
    for (std::size_t e = 0; e < gate.size() / d; ++e) {
      const double p = std::exp(affine(gate, &x[t * d], e, d)) / partition;
      const auto part = [&](const char* name) {
        return get(layer, "expert." + std::to_string(e) + "." + name, layer.values());
      };
      const Numbers w1 = part("w1"), b1 = part("b1"), w2 = part("w2"), b2 = part("b2");
      Numbers active(h);
      for (std::size_t i = 0; i < h; ++i) {
        active[i] = reference::activate(options.activation, affine(w1, &x[t * d], i, d) + b1[i]);
      }
      for (std::size_t i = 0; i < d; ++i) {
        y[t * d + i] += p * (affine(w2, active.data(), i, h) + b2[i]);
      }
    }
  }
  return y;
}

TEST(ReferenceLayer, WithAllExpertsChosenIsTheDenseMixture) {
  std::mt19937_64 random(1);
  for (const int experts : {1, 2, 5}) {  // one: the plain feed-forward network
    for (const auto activation : {Activation::kRelu, Activation::kGelu, Activation::kSilu}) {
      LayerOptions options{.width = 3,
                           .hidden = 7,
                           .experts = experts,
                           .top_k = experts,
                           .activation = activation,
                           .weight = GateWeight::kSoftmax};
      ReferenceLayer layer = random_layer(options, random);
      const Numbers x = random_numbers(6 * 3, random);
      const Numbers y = layer.forward(x).y;
      expect_near(y, dense_mixture(layer, x), 1e-14, "softmax weights");

      options.weight = GateWeight::kNormalized;  // all weights sum to 1 already
      ReferenceLayer normalized(options);
      std::ranges::copy(layer.values(), normalized.values().begin());
      expect_near(normalized.forward(x).y, y, 1e-14, "normalized weights");
    }
  }
}

TEST(ReferenceLayer, ReorderedTokensGiveReorderedOutputsBitForBit) {
  std::mt19937_64 random(2);
  const LayerOptions options{
      .width = 3, .hidden = 5, .experts = 4, .top_k = 2, .balance = BalanceLoss::kFirstChoice};
  const ReferenceLayer layer = random_layer(options, random);
  const std::vector<std::size_t> order = {4, 2, 6, 0, 5, 1, 3};
  const Numbers x = random_numbers(7 * 3, random), dy = random_numbers(7 * 3, random);
  const auto reorder = [&](const Numbers& rows) {
    Numbers result;
    for (const std::size_t t : order) result.insert(result.end(), &rows[t * 3], &rows[t * 3] + 3);
    return result;
  };
  const Forward straight = layer.forward(x), shuffled = layer.forward(reorder(x));
  EXPECT_EQ(shuffled.y, reorder(straight.y));
  EXPECT_NE(shuffled.y, straight.y);

  const Gradients from_straight = layer.backward(straight.saved, dy);
  const Gradients from_shuffled = layer.backward(shuffled.saved, reorder(dy));
  EXPECT_EQ(from_shuffled.dx, reorder(from_straight.dx));
  expect_near(from_shuffled.parameters, from_straight.parameters, 1e-14, "parameters");
}

TEST(ReferenceLayer, ATokenDoesNotSeeTheOthers) {
  std::mt19937_64 random(3);
  const ReferenceLayer layer =
      random_layer({.width = 3, .hidden = 5, .experts = 4, .top_k = 2}, random);
  const Numbers x = random_numbers(6 * 3, random);
  Numbers one_by_one;
  for (std::size_t t = 0; t < 6; ++t) {
    const Numbers y = layer.forward(std::span(x).subspan(t * 3, 3)).y;
    one_by_one.insert(one_by_one.end(), y.begin(), y.end());
  }
  EXPECT_EQ(layer.forward(x).y, one_by_one);
}

TEST(ReferenceLayer, RepeatsItselfBitForBit) {
  std::mt19937_64 random(4);
  const LayerOptions options{
      .width = 8, .hidden = 16, .experts = 8, .top_k = 3, .balance = BalanceLoss::kImportance};
  const ReferenceLayer layer = random_layer(options, random);
  const Numbers x = random_numbers(33 * 8, random), dy = random_numbers(33 * 8, random);
  const Forward first = layer.forward(x);
  const Gradients first_gradients = layer.backward(first.saved, dy);
  for (int repeat = 0; repeat < 20; ++repeat) {
    const ReferenceLayer copy = layer;
    const Forward again = copy.forward(x);
    ASSERT_EQ(again.y, first.y) << "repeat " << repeat;
    const Gradients gradients = copy.backward(again.saved, dy);
    ASSERT_EQ(gradients.dx, first_gradients.dx) << "repeat " << repeat;
    ASSERT_EQ(gradients.parameters, first_gradients.parameters) << "repeat " << repeat;
  }
}

TEST(ReferenceLayer, NoTokensGiveNoOutputAndZeroGradients) {
  for (const auto balance : {BalanceLoss::kNone, BalanceLoss::kFirstChoice,
                             BalanceLoss::kAllChoices, BalanceLoss::kImportance}) {
    std::mt19937_64 random(5);
    const LayerOptions options{.width = 2, .hidden = 3, .experts = 2, .balance = balance};
    const ReferenceLayer layer = random_layer(options, random);
    const Forward result = layer.forward({});
    EXPECT_THAT(result.y, IsEmpty());
    EXPECT_EQ(result.saved.routing.balance_loss, 0);
    const Gradients gradients = layer.backward(result.saved, {});
    EXPECT_THAT(gradients.dx, IsEmpty());
    EXPECT_EQ(gradients.parameters.size(), layer.values().size());
    EXPECT_THAT(gradients.parameters, Each(0.0));
  }
}

TEST(ReferenceLayer, NamesItsParametersInOrderWithoutGaps) {
  const ReferenceLayer layer({.width = 2, .hidden = 3, .experts = 2});
  std::vector<std::string> names;
  std::size_t next = 0;
  for (const ParameterInfo& info : layer.parameters()) {
    names.push_back(info.name);
    EXPECT_EQ(info.first, next) << info.name;
    std::size_t count = 1;
    for (const std::size_t extent : info.shape) count *= extent;
    EXPECT_EQ(info.count, count) << info.name;
    next += info.count;
  }
  EXPECT_EQ(next, layer.values().size());
  EXPECT_THAT(names, ElementsAre("gate", "expert.0.w1", "expert.0.b1", "expert.0.w2", "expert.0.b2",
                                 "expert.1.w1", "expert.1.b1", "expert.1.w2", "expert.1.b2"));
  EXPECT_THAT(layer.parameter("gate").shape, ElementsAre(2, 2));
  EXPECT_THAT(layer.parameter("expert.1.w1").shape, ElementsAre(3, 2));
  EXPECT_THAT(layer.parameter("expert.1.w2").shape, ElementsAre(2, 3));
  expect_invalid([&] { layer.parameter("expert.2.w1"); }, {"expert.2.w1", "2 experts"});
}

TEST(ReferenceLayer, InitializesWithinItsBoundsFromTheSeedAlone) {
  ReferenceLayer layer({.width = 4, .hidden = 100, .experts = 3}), same = layer;
  std::mt19937_64 random(6), same_random(6);
  layer.initialize(random);
  same.initialize(same_random);
  EXPECT_THAT(layer.values(), ElementsAreArray(same.values()));
  for (const ParameterInfo& info : layer.parameters()) {
    const double bound = info.name.ends_with("2") ? 0.1 : 0.5;  // 1 / sqrt(100), 1 / sqrt(4)
    double largest = 0;
    for (const double value : info.of(layer.values())) largest = std::max(largest, std::abs(value));
    EXPECT_LE(largest, bound) << info.name;
    EXPECT_GT(largest, bound / 2) << info.name;
  }
}

TEST(ReferenceLayer, RefusesOptionsOutOfRange) {
  const auto make = [](const LayerOptions& options) {
    return [=] { ReferenceLayer layer(options); };
  };
  expect_invalid(make({.width = 0, .hidden = 1, .experts = 1}), {"width", "0"});
  expect_invalid(make({.width = 1, .hidden = -3, .experts = 1}), {"hidden", "-3"});
  expect_invalid(make({.width = 1, .hidden = 1, .experts = 0}), {"experts", "0"});
  expect_invalid(make({.width = 1, .hidden = 1, .experts = 2, .top_k = 3}),
                 {"top_k is 3", "2 experts"});
  expect_invalid(make({.width = 1, .hidden = 1, .experts = 2, .top_k = 0}), {"top_k is 0"});
  expect_invalid(make({.width = 1, .hidden = 1, .experts = 1, .balance_scale = kNan}),
                 {"balance_scale", "nan"});
  expect_invalid(make({.width = 1, .hidden = 1, .experts = 1, .balance_scale = -1}),
                 {"balance_scale", "-1"});
  expect_invalid(make({.width = 1 << 20, .hidden = 1 << 20, .experts = 1 << 20}), {"parameters"});
}

TEST(ReferenceLayer, RefusesNumbersThatAreNotFinite) {
  std::mt19937_64 random(7);
  ReferenceLayer layer = random_layer({.width = 2, .hidden = 3, .experts = 2}, random);
  for (const double bad : {kNan, kInfinity, -kInfinity}) {
    Numbers x = {1, 2, 3, 4, 5, 6};
    const Forward good = layer.forward(x);
    x[3] = bad;
    expect_invalid([&] { layer.forward(x); }, {"x of token 1, column 1"});
    expect_invalid([&] { layer.backward(good.saved, x); }, {"dy of token 1, column 1"});
    expect_invalid([&] { layer.backward(good.saved, Numbers(6), bad); }, {"dbalance"});
  }
  // Also where no token would meet it: with no tokens at all.
  layer.parameter("expert.1.w2").of(layer.values())[4] = kNan;
  expect_invalid([&] { layer.forward({}); }, {"expert.1.w2[4]", "nan"});
}

TEST(ReferenceLayer, RefusesToOverflow) {
  LayerOptions options{.width = 1, .hidden = 1, .experts = 2, .activation = Activation::kRelu};
  ReferenceLayer layer(options);
  set(layer, "gate", {1e200, 0});
  expect_invalid([&] { layer.forward(Numbers{1e200}); }, {"logit of token 0 for expert 0", "inf"});
  set(layer, "gate", {0, 0});
  set(layer, "expert.0.w1", {1e200});
  set(layer, "expert.0.w2", {1e200});
  expect_invalid([&] { layer.forward(Numbers{1}); }, {"y of token 0, column 0", "inf"});
  const Forward fine = layer.forward(Numbers{-1});  // ReLU: nothing passes
  EXPECT_THAT(fine.y, ElementsAre(0));
  set(layer, "expert.0.w2", {1});
  const Forward large = layer.forward(Numbers{1});
  expect_invalid([&] { layer.backward(large.saved, Numbers{1e200}); },
                 {"dx of token 0", "overflows"});
  set(layer, "expert.0.w1", {0});
  set(layer, "expert.0.b1", {1e200});
  set(layer, "expert.0.w2", {1e-200});
  const Forward biased = layer.forward(Numbers{1});
  expect_invalid([&] { layer.backward(biased.saved, Numbers{1e200}); },
                 {"gradient of", "expert.0.w2[0]"});

  options.balance = BalanceLoss::kFirstChoice;
  options.balance_scale = std::numeric_limits<double>::max();
  ReferenceLayer scaled(options);
  set(scaled, "gate", {10, 0});
  expect_invalid([&] { scaled.forward(Numbers{1}); }, {"balance loss is inf"});
}

TEST(ReferenceLayer, RefusesShapesThatDoNotFit) {
  std::mt19937_64 random(8);
  const ReferenceLayer layer = random_layer({.width = 2, .hidden = 3, .experts = 2}, random);
  const ReferenceLayer other = random_layer({.width = 2, .hidden = 4, .experts = 2}, random);
  expect_invalid([&] { layer.forward(Numbers(5)); }, {"5 numbers", "width 2"});
  const Forward result = layer.forward(Numbers(4));
  expect_invalid([&] { layer.backward(result.saved, Numbers(6)); }, {"dy holds 6", "4"});
  expect_invalid([&] { other.backward(result.saved, Numbers(4)); }, {"`saved`", "hidden 4"});
  Saved spoilt = result.saved;
  spoilt.routing.expert[1] = 2;
  expect_invalid([&] { layer.backward(spoilt, Numbers(4)); }, {"`saved`", "2 experts"});
}

}  // namespace
}  // namespace motley::moe
