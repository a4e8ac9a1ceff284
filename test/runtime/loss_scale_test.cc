// Shows that the loss scale grows and backs off as published, and that 16-bit training follows each
// optimizer's float32 steps where plain 16-bit training would stand still.
#include "runtime/loss_scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "comm/convert.h"
#include "runtime/optimizer.h"
#include "test/support/errors.h"

namespace motley::runtime {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

TEST(LossScale, GrowsAfterSoManyFiniteStepsAndBacksOffAtOnce) {
  LossScale scale({.initial = 8, .growth_interval = 3, .least = 4, .most = 16});
  std::vector<double> values;
  for (const bool finite : {true, true, false, true, true, true, true, true, true, true, true, true,
                            false, false, false}) {
    scale.update(finite);
    values.push_back(scale.value());
  }
  EXPECT_THAT(values, ElementsAre(8, 8, 4, 4, 4, 8, 8, 8, 16, 16, 16, 16, 8, 4, 4));
  LossScale fixed({.initial = 1, .growth_interval = 0});
  fixed.update(false);
  EXPECT_EQ(fixed.value(), 1);
}

// The third of three finite steps grows the scale, whichever of two objects counted the first two.
TEST(LossScale, GoesOnFromItsState) {
  const LossScaleOptions options{.initial = 8, .growth_interval = 3};
  LossScale first(options), second(options);
  first.update(false);
  first.update(true);
  first.update(true);
  State from, to;
  first.list(from);
  second.list(to);
  for (const StateItem& item : from.items()) convert(to.find(item.name).data, item.data);
  second.update(true);
  EXPECT_EQ(second.value(), 8);  // 4, doubled
}

TEST(LossScale, RejectsWhatCannotBe) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const LossScaleOptions& options : std::vector<LossScaleOptions>{{.initial = 0},
                                                                       {.initial = nan},
                                                                       {.initial = 1e30},
                                                                       {.growth = 0.5},
                                                                       {.backoff = 1},
                                                                       {.backoff = 0},
                                                                       {.growth_interval = -1},
                                                                       {.least = 0},
                                                                       {.least = 8, .most = 4}}) {
    test::expect_invalid([&] { LossScale{options}; });
  }
  std::vector<float> x(2);
  std::vector<double> doubles(2);
  test::expect_invalid([&] { MixedPrecision(doubles, DType::kFloat16); });
  test::expect_invalid([&] { MixedPrecision(x, DType::kFloat32); });
  test::expect_invalid([&] { MixedPrecision(x, DType::kInt16); });
  MixedPrecision mixed(x, DType::kFloat16);
  std::vector<float> three(3);
  test::expect_invalid([&] { mixed.unscale(three); });
}

template <class T>
class MixedTraining : public ::testing::Test {};
using Types = ::testing::Types<half, bfloat16>;
TYPED_TEST_SUITE(MixedTraining, Types);

// Gradients that both 16-bit types hold exactly: the masters then make the float32 steps, bit for
// bit, with every optimizer; their copies are those rounded.
TYPED_TEST(MixedTraining, FollowsTheFloat32StepsOfEveryOptimizer) {
  using T = TypeParam;
  using Make = std::function<std::unique_ptr<Optimizer>(ConstView)>;
  for (const Make& make : std::vector<Make>{
           [](ConstView x) {
             return std::make_unique<Sgd>(x, SgdOptions{.momentum = 0.9, .nesterov = true});
           },
           [](ConstView x) { return std::make_unique<AdaGrad>(x, AdaGradOptions{}); },
           [](ConstView x) { return std::make_unique<Adam>(x, AdamOptions{.weight_decay = 0.1}); },
           [](ConstView x) { return std::make_unique<Ftrl>(x, FtrlOptions{.l1 = 0.01}); }}) {
    const std::vector<float> gradient = {0.5F, -0.25F, 0.75F};
    std::vector<float> x = {1, -2, 0.5F}, master = x, unscaled(3);
    MixedPrecision mixed(master, dtype_of<T>, {.initial = 1024, .growth_interval = 2});
    const auto plain = make(x), of_master = make(master);
    for (int step = 0; step < 5; ++step) {
      plain->update(x, gradient);
      convert(mixed.gradients(), gradient, mixed.loss_scale());
      ASSERT_TRUE(mixed.unscale(unscaled));
      EXPECT_EQ(unscaled, gradient);
      of_master->update(master, unscaled);
      mixed.refresh();
    }
    EXPECT_EQ(master, x);
    EXPECT_EQ(mixed.loss_scale(), 4096);
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(mixed.values().template as<T>()[i].bits, T(x[i]).bits);
    }
  }
}

// Steps of 2^-12 from 1 are lost in 16 bits, but not in the masters.
TYPED_TEST(MixedTraining, KeepsStepsThatAreTooSmallForItsCopies) {
  using T = TypeParam;
  std::vector<float> master = {1}, unscaled(1);
  MixedPrecision mixed(master, dtype_of<T>, {.initial = 1, .growth_interval = 0});
  Sgd sgd(master, {.learning_rate = 0x1p-12});
  for (int step = 0; step < 64; ++step) {
    mixed.gradients().template as<T>()[0] = T(1.0F);
    ASSERT_TRUE(mixed.unscale(unscaled));
    sgd.update(master, unscaled);
    mixed.refresh();
  }
  EXPECT_EQ(master[0], 1 - 0x1p-6F);
  EXPECT_EQ(static_cast<float>(mixed.values().template as<T>()[0]), 1 - 0x1p-6F);
}

// 2^-26 is 0 in float16; times 2^10 it is not.
TEST(MixedTraining, KeepsGradientsThatAreTooSmallForFloat16) {
  const float small = 0x1p-26F;
  EXPECT_EQ(static_cast<float>(half(small)), 0);
  std::vector<float> master = {1}, unscaled(1);
  MixedPrecision mixed(master, DType::kFloat16, {.initial = 1024});
  mixed.gradients().as<half>()[0] = half(small * 1024);
  ASSERT_TRUE(mixed.unscale(unscaled));
  EXPECT_EQ(unscaled[0], small);
}

TYPED_TEST(MixedTraining, LeavesOutStepsThatAreNotFinite) {
  using T = TypeParam;
  std::vector<float> master = {1, 2}, unscaled = {7, 7};
  MixedPrecision mixed(master, dtype_of<T>, {.initial = 1024});
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    mixed.gradients().template as<T>()[1] = T(bad);
    EXPECT_FALSE(mixed.unscale(unscaled));
  }
  EXPECT_THAT(unscaled, Each(7.0F));
  EXPECT_EQ(mixed.loss_scale(), 256);
  EXPECT_EQ(mixed.skipped(), 2);
  State state;
  mixed.list(state);
  EXPECT_EQ(state.find("loss_scale.value").data.template as<double>()[0], 256);
}

}  // namespace
}  // namespace motley::runtime
