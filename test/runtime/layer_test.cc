// Shows that each layer's gradients are the central differences of what it computes, in double
// precision; that products are those of plain sums; and what a model promises beside.
#include "runtime/layer/layer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cross_entropy.h"
#include "runtime/gemm.h"
#include "runtime/model.h"
#include "test/support/errors.h"

namespace motley::runtime {
namespace {

using test::expect_error;
using test::expect_invalid;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Pair;

// n different numbers in (-1, 1), none nearer to 0 or to another than 1 / n: no step of a central
// difference crosses the corner of a ReLU or changes which of a window is the largest.
std::vector<double> distinct(std::size_t n, std::uint64_t seed) {
  std::vector<double> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    values[i] = (2 * static_cast<double>(i) + 1.25) / static_cast<double>(n) - 1;
  }
  std::shuffle(values.begin(), values.end(), std::mt19937_64(seed));
  return values;
}

double dot(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// gradient [n] is the central difference of `loss` over x [n].
void expect_gradient(std::span<double> x, std::span<const double> gradient, const std::string& what,
                     const std::function<double()>& loss) {
  constexpr double kStep = 1e-5;
  ASSERT_EQ(x.size(), gradient.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double middle = std::exchange(x[i], x[i] + kStep);
    const double above = loss();
    x[i] = middle - kStep;
    const double slope = (above - loss()) / (2 * kStep);
    x[i] = middle;
    EXPECT_NEAR(gradient[i], slope, 1e-7 * std::max(1.0, std::abs(slope))) << what << " " << i;
  }
}

struct Case {
  const char* name;
  LayerOptions options;
  ImageShape in;
  std::size_t rows = 3;
};

class LayerGradient : public ::testing::TestWithParam<Case> {};

// The loss is a weighted sum of the outputs. Gradients of parameters are 1 before: they are added.
TEST_P(LayerGradient, IsTheCentralDifference) {
  const auto& [name, options, shape, rows] = GetParam();
  const auto layer = make_layer<double>(options, shape, nullptr);
  std::vector<std::vector<double>> values, gradients;
  for (const Shape& parameter : layer->parameters()) {
    values.emplace_back(parameter.count());
    gradients.emplace_back(parameter.count(), 1.0);
  }
  std::vector<Slot<double>> slots;
  for (std::size_t i = 0; i < values.size(); ++i) slots.push_back({values[i], gradients[i]});
  std::mt19937_64 random(1);
  layer->place(slots, random);
  for (auto& parameter : values) {  // none at a special value
    const auto noise = distinct(parameter.size(), 2);
    for (std::size_t i = 0; i < noise.size(); ++i) parameter[i] += noise[i];
  }

  std::vector<double> in = distinct(rows * shape.count(), 3), d_in(in.size());
  std::vector<double> out(rows * layer->output().count());
  const std::vector<double> d_out = distinct(out.size(), 4);
  const auto loss = [&, rows = rows] {
    layer->forward(in, out, rows, Mode::kTrain);
    return dot(out, d_out);
  };
  loss();
  layer->backward(in, d_out, std::span(d_in), rows);
  const std::vector<double> d_in_alone = d_in;
  for (std::size_t p = 0; p < values.size(); ++p) {
    for (double& g : gradients[p]) g -= 1;
    expect_gradient(values[p], gradients[p], layer->parameters()[p].name, loss);
  }
  expect_gradient(in, d_in_alone, "in", loss);
}

// Shapes that are not square, strides that leave a rest, windows that overlap, padding, one pixel.
INSTANTIATE_TEST_SUITE_P(
    Layers, LayerGradient,
    ::testing::Values(
        Case{"dense", Dense{4}, {2, 3, 1}},
        Case{"dense_alone", Dense{1, Bias::kNone}, {5, 1, 1}, 1}, Case{"relu", Relu{}, {2, 3, 4}},
        Case{"conv", Conv2d{.channels = 3}, {2, 4, 5}},
        Case{"conv_same", Conv2d{.channels = 2, .padding = 1}, {1, 3, 4}},
        Case{"conv_stride",
             Conv2d{.channels = 2, .kernel = 3, .stride = 2, .padding = 2, .bias = Bias::kNone},
             {2, 6, 5}},
        Case{"conv_pixel", Conv2d{.channels = 3, .kernel = 1}, {2, 2, 2}},
        Case{"maximum", Pool{}, {2, 4, 6}},
        Case{"maximum_overlapping", Pool{.size = 3, .stride = 2}, {2, 6, 5}},
        Case{"average", Pool{.kind = PoolKind::kAverage}, {2, 5, 4}},
        Case{"average_overlapping", Pool{PoolKind::kAverage, 3, 1}, {1, 4, 5}},
        Case{"norm_1d", BatchNorm{}, {3, 1, 1}, 5}, Case{"norm_2d", BatchNorm{}, {2, 3, 2}}),
    [](const auto& one) { return one.param.name; });

// The loss of a chain of all kinds, through a Model.
TEST(ModelGradient, IsTheCentralDifferenceOfTheLoss) {
  Model<double> model({.channels = 2, .height = 6, .width = 6},
                      {Conv2d{.channels = 3, .padding = 1, .bias = Bias::kNone}, BatchNorm{},
                       Relu{}, Pool{}, Conv2d{.channels = 4, .kernel = 2}, BatchNorm{}, Relu{},
                       Pool{.kind = PoolKind::kAverage}, Dense{6}, BatchNorm{}, Relu{}, Dense{5}},
                      {.seed = 5});
  const std::vector<double> in = distinct(4 * model.input().count(), 6);
  const std::vector<std::uint8_t> labels = {4, 0, 2, 2};
  std::vector<double> d_scores(4 * 5);
  const auto loss = [&] {
    return softmax_cross_entropy<double>(model.forward(in, Mode::kTrain), labels, d_scores).mean;
  };
  EXPECT_GT(loss(), 0.1);
  model.backward(d_scores);
  expect_gradient(model.parameters().values().as<double>(),
                  model.parameters().gradients().as<double>(), "parameter", loss);
}

TEST(CrossEntropy, HasTheLossAndTheGradientOfItsFormula) {
  std::vector<double> scores = {0, std::log(3.0), 1000, 0, 0, 0};
  std::vector<double> d_scores(6);
  // Probabilities 1/4 and 3/4; then 1 and 0, although exp(1000) overflows; then 1/2 each.
  const std::vector<std::uint8_t> labels = {1, 0, 1};
  const Loss loss = softmax_cross_entropy<double>(scores, labels, d_scores, 3);
  EXPECT_NEAR(loss.mean, (std::log(4.0 / 3) + 0 + std::log(2.0)) / 3, 1e-12);
  EXPECT_EQ(loss.correct, 2u);
  const double expected[] = {0.25, -0.25, 0, 0, 0.5, -0.5};
  for (int i = 0; i < 6; ++i) EXPECT_NEAR(d_scores[i], expected[i], 1e-12) << i;
  EXPECT_EQ(softmax_cross_entropy<double>({}, {}, {}).mean, 0);
  const std::vector<std::uint8_t> outside = {0, 2, 1};
  expect_error(ErrorCode::kInvalid, {"row 1", "label 2", "2 classes"},
               [&] { return softmax_cross_entropy<double>(scores, outside, d_scores); });
  expect_invalid(
      [&] { return softmax_cross_entropy<double>(scores, labels, std::span(d_scores).first(5)); });
  expect_invalid([&] { return softmax_cross_entropy<double>({}, labels, {}); });
}

class Products : public ::testing::TestWithParam<std::tuple<int, bool, bool>> {};

TEST_P(Products, AreSumsOfProducts) {
  const auto [size, a_transposed, b_transposed] = GetParam();
  const std::size_t n = static_cast<std::size_t>(size), rows = n, terms = n + 2, columns = n + 1;
  const auto a = distinct(rows * terms, 1), b = distinct(terms * columns, 2);
  const auto factor = [](const std::vector<double>& data, std::size_t r, std::size_t c,
                         bool turned) {
    return turned ? transposed(Factor<double>{data.data(), c, r})
                  : Factor<double>{data.data(), r, c};
  };
  std::vector<double> out(rows * columns, 7), sum = out;
  multiply(factor(a, rows, terms, a_transposed), factor(b, terms, columns, b_transposed),
           out.data(), Into::kReplace);
  multiply(factor(a, rows, terms, a_transposed), factor(b, terms, columns, b_transposed),
           sum.data(), Into::kAdd);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) {
      double expected = 0;
      for (std::size_t k = 0; k < terms; ++k) {
        expected += a[a_transposed ? k * rows + i : i * terms + k] *
                    b[b_transposed ? j * terms + k : k * columns + j];
      }
      EXPECT_NEAR(out[i * columns + j], expected, 1e-12);
      EXPECT_NEAR(sum[i * columns + j], expected + 7, 1e-12);
    }
  }
}
// 0 rows; one; few; more than a kernel of OpenBLAS takes at once.
INSTANTIATE_TEST_SUITE_P(Sizes, Products,
                         ::testing::Combine(::testing::Values(0, 1, 5, 70), ::testing::Bool(),
                                            ::testing::Bool()));

TEST(Products, OfNoTermsAreZero) {
  std::vector<float> out(6, 7);
  multiply<float>({nullptr, 2, 0}, {nullptr, 0, 3}, out.data(), Into::kAdd);
  EXPECT_THAT(out, Each(7.0f));
  multiply<float>({nullptr, 2, 0}, {nullptr, 0, 3}, out.data(), Into::kReplace);
  EXPECT_THAT(out, Each(0.0f));
}

// Batches {1, 3} and {5, 9}: means 2 and 7, variances over n - 1 of 2 and 8; each followed halfway
// from 0 and 1.
TEST(BatchNormLayer, FollowsTheBatchesAndEvaluatesByThat) {
  Model<double> model({}, {BatchNorm{.momentum = 0.5, .epsilon = 1e-12}}, {});
  const std::vector<double> first = {1, 3}, second = {5, 9};
  const auto out = model.forward(first, Mode::kTrain);
  EXPECT_NEAR(out[0], -1, 1e-9);
  EXPECT_NEAR(out[1], 1, 1e-9);
  model.forward(second, Mode::kTrain);
  State state;
  model.list(state);
  EXPECT_NEAR(state.find("norm1.running_mean").data.as<double>()[0], (0 + 1 + 7) / 2.0, 1e-12);
  EXPECT_NEAR(state.find("norm1.running_variance").data.as<double>()[0], (1.5 + 8) / 2, 1e-12);
  const std::vector<double> one = {4 + std::sqrt(4.75)};
  EXPECT_NEAR(model.forward(one, Mode::kEvaluate)[0], 1, 1e-9);
  expect_error(ErrorCode::kInvalid, {"1 value"}, [&] { model.forward(one, Mode::kTrain); });
}

std::vector<LayerOptions> small_model() {
  return {Conv2d{.channels = 2}, BatchNorm{}, Relu{}, Dense{3}, Relu{}, Dense{2}};
}

TEST(Model, NamesItsStateAndFillsItFromTheSeedAlone) {
  const auto values = [](std::uint64_t seed) {
    Model<float> model({1, 4, 4}, small_model(), {.seed = seed});
    const auto all = model.parameters().values().as<float>();
    return std::vector<float>(all.begin(), all.end());
  };
  EXPECT_EQ(values(1), values(1));
  EXPECT_NE(values(1), values(2));

  Model<float> model({1, 4, 4}, small_model(), {});
  State state;
  model.list(state);
  std::vector<std::string> names;
  for (const StateItem& item : state.items()) {
    names.push_back(item.name);
    EXPECT_EQ(item.policy, StatePolicy::kAverage);
  }
  EXPECT_THAT(names, ElementsAre("conv1.weight", "conv1.bias", "norm1.scale", "norm1.shift",
                                 "dense1.weight", "dense1.bias", "dense2.weight", "dense2.bias",
                                 "norm1.running_mean", "norm1.running_variance"));
  EXPECT_THAT(state.find("conv1.weight").shape, ElementsAre(2, 1, 3, 3));
  const float bound = std::sqrt(6.0f / 9);
  for (const float weight : model.parameters().values("conv1.weight").as<float>()) {
    EXPECT_LE(std::abs(weight), bound);
  }
}

// What the hook names is final, and is everything, from the last layer to the first.
TEST(Model, TellsWhichGradientsAreComplete) {
  Model<double> model({1, 4, 4}, small_model(), {.seed = 1});
  const std::vector<double> in = distinct(3 * 16, 1), d_out = distinct(3 * 2, 2);
  model.forward(in, Mode::kTrain);
  const auto gradients = model.parameters().gradients().as<double>();
  std::vector<double> seen(gradients.size());
  std::vector<std::pair<std::size_t, std::size_t>> parts;
  model.backward(d_out, [&](std::size_t first, std::size_t count) {
    parts.emplace_back(first, count);
    std::copy_n(gradients.begin() + static_cast<std::ptrdiff_t>(first), count,
                seen.begin() + static_cast<std::ptrdiff_t>(first));
  });
  EXPECT_THAT(parts, ElementsAre(Pair(24 + 27, 8), Pair(24, 27), Pair(20, 4), Pair(0, 20)));
  EXPECT_THAT(seen, ::testing::ElementsAreArray(gradients.begin(), gradients.end()));
}

TEST(Model, TakesNoRows) {
  Model<float> model({1, 4, 4}, small_model(), {});
  for (const Mode mode : {Mode::kEvaluate, Mode::kTrain}) {
    EXPECT_TRUE(model.forward({}, mode).empty());
  }
  model.backward({});
  EXPECT_THAT(model.parameters().gradients().as<float>(), Each(0.0f));
}

TEST(Model, RejectsWhatDoesNotFit) {
  for (const LayerOptions& layer : std::vector<LayerOptions>{
           Dense{}, Conv2d{}, Conv2d{.channels = 1, .kernel = 5},
           Conv2d{.channels = 1, .kernel = 0}, Conv2d{.channels = 1, .stride = 0},
           Conv2d{.channels = 1, .kernel = 3, .padding = 3}, Pool{.size = 5}, Pool{.stride = 0},
           BatchNorm{.momentum = 1.5}, BatchNorm{.epsilon = 0}}) {
    expect_invalid([&] { return Model<float>({1, 4, 4}, {layer}, {}); });
  }
  expect_invalid([] { return Model<float>({1, 4, 4}, {}, {}); });
  expect_invalid([] { return Model<float>({1, 0, 4}, {Relu{}}, {}); });

  Model<float> model({3, 1, 1}, {Dense{2}}, {});
  const std::vector<float> seven(7), six(6), four(4);
  expect_error(ErrorCode::kInvalid, {"7 inputs", "rows of 3"},
               [&] { model.forward(seven, Mode::kTrain); });
  model.forward(six, Mode::kEvaluate);
  expect_invalid([&] { model.backward(four); });
  model.forward(six, Mode::kTrain);
  expect_error(ErrorCode::kInvalid, {"6 gradients", "4 outputs"}, [&] { model.backward(six); });
  model.backward(four);
  expect_invalid([&] { model.backward(four); });  // once
}

}  // namespace
}  // namespace motley::runtime
