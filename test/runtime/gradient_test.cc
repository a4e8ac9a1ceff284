// Shows that micro-batches give the gradient of their whole, whatever their sizes, and that
// clipping goes by the norm over all buckets and leaves alone what is not finite.
#include "runtime/gradient.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "runtime/seed.h"
#include "test/support/errors.h"

namespace motley::runtime {
namespace {

using test::expect_invalid;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Over two buckets of different types 3, 4 and 12 have the norm 13; 1e30 squared is no float32.
TEST(Clipping, GoesByTheNormOverAllBuckets) {
  std::vector<float> first = {3, 0, -4}, none;
  std::vector<double> second = {12};
  const auto clip = [&](double most) {
    const std::vector<View> buckets = {first, none, second};
    return clip_by_global_norm(buckets, most);
  };
  Clipped clipped = clip(13);
  EXPECT_EQ(clipped.norm, 13);
  EXPECT_FALSE(clipped.scaled);
  EXPECT_THAT(first, ElementsAre(3, 0, -4));
  clipped = clip(6.5);
  EXPECT_TRUE(clipped.scaled);
  EXPECT_TRUE(clipped.finite);
  EXPECT_THAT(first, ElementsAre(1.5, 0, -2));
  EXPECT_THAT(second, ElementsAre(6));
  first = {1e30F, 0, 0};
  clipped = clip(1);
  EXPECT_NEAR(clipped.norm, 1e30, 1e23);
  EXPECT_NEAR(first[0], 1, 1e-6);
  EXPECT_EQ(clip_by_global_norm({}, 1).norm, 0);
}

TEST(Clipping, DoesNotDependOnWhereBucketsEnd) {
  std::mt19937_64 random = make_generator({.seed = 1});
  std::vector<float> whole(1000);
  for (float& x : whole) x = std::normal_distribution<float>()(random);
  std::vector<float> cut = whole;
  std::vector<View> buckets;
  for (const std::size_t length : {1u, 0u, 499u, 500u}) {
    buckets.push_back(View(cut).slice(buckets.empty() ? 0 : buckets.size() < 3 ? 1 : 500, length));
  }
  const View one = whole;
  EXPECT_EQ(clip_by_global_norm({&one, 1}, 2).norm, clip_by_global_norm(buckets, 2).norm);
  EXPECT_EQ(whole, cut);
  EXPECT_NEAR(clip_by_global_norm(buckets, 100).norm, 2, 1e-6);
}

TEST(Clipping, ReportsWhatIsNotFiniteAndChangesNothing) {
  for (const float bad : {kInfinity, -kInfinity, kNan}) {
    std::vector<float> first = {100, 200}, second = {bad};
    const std::vector<View> buckets = {first, second};
    const Clipped clipped = clip_by_global_norm(buckets, 1);
    EXPECT_FALSE(clipped.finite);
    EXPECT_FALSE(clipped.scaled);
    EXPECT_FALSE(std::isfinite(clipped.norm));
    EXPECT_THAT(first, ElementsAre(100, 200));
  }
  std::vector<float> x = {1};
  std::vector<int> integers = {1};
  const View view = x, wrong = integers;
  for (const double most : {0.0, -1.0, double{kNan}, double{kInfinity}}) {
    expect_invalid([&] { clip_by_global_norm({&view, 1}, most); });
  }
  expect_invalid([&] { clip_by_global_norm({&wrong, 1}, 1); });
}

TEST(AllFinite, FindsOneOfMany) {
  std::vector<float> x(100);
  EXPECT_TRUE(all_finite(x));
  EXPECT_TRUE(all_finite(std::vector<float>()));
  x[99] = kNan;
  EXPECT_FALSE(all_finite(x));
  EXPECT_FALSE(all_finite(std::vector<half>{half(65504.0F), half(65520.0F)}));
  EXPECT_TRUE(all_finite(std::vector<bfloat16>{bfloat16(65520.0F)}));
  EXPECT_FALSE(all_finite(std::vector<double>{-double{kInfinity}}));
}

// Mean gradients of 1, 2 and 5 samples; the mean over all 8 is the sum over samples by 8.
template <class T>
class Accumulation : public ::testing::Test {};
using Types = ::testing::Types<float, double, half, bfloat16>;
TYPED_TEST_SUITE(Accumulation, Types);

TYPED_TEST(Accumulation, OfMicroBatchesGivesTheMeanOverAllSamples) {
  using T = TypeParam;
  using Out = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const auto of = [](float a, float b) { return std::vector<T>{T(a), T(b)}; };
  GradientAccumulator accumulator(of(0, 0));
  std::vector<Out> out(2);
  for (int repeat = 0; repeat < 2; ++repeat) {  // the second time from nothing, too
    accumulator.add(of(8, -1), 1);
    accumulator.add(of(2, 0.5), 2);
    accumulator.add(of(0, 4), 5);
    EXPECT_EQ(accumulator.samples(), 8);
    accumulator.mean(out);
    EXPECT_THAT(out, ElementsAre(Out(12) / 8, Out(20) / 8));
    EXPECT_EQ(accumulator.samples(), 0);
  }
  // k equal micro-batches: the mean of their means. Back in the type of the gradients.
  accumulator.add(of(1, 3), 7);
  accumulator.add(of(2, 5), 7);
  std::vector<T> same = of(0, 0);
  accumulator.mean(same);
  EXPECT_EQ(static_cast<float>(same[0]), 1.5F);
  EXPECT_EQ(static_cast<float>(same[1]), 4);
}

// 1 + 2^-9 a thousand times is not in bfloat16: added in it the sum would stay at 256.
TEST(Accumulation, Of16BitGradientsIsInFloat32) {
  const std::vector<bfloat16> one = {bfloat16(1.0F)};
  GradientAccumulator accumulator(one);
  for (int i = 0; i < 1000; ++i) accumulator.add(one, 1);
  std::vector<float> out(1);
  accumulator.mean(out);
  EXPECT_EQ(out[0], 1);
}

TEST(Accumulation, RejectsWhatDoesNotFit) {
  std::vector<float> two(2), three(3), none;
  std::vector<double> doubles(2);
  GradientAccumulator accumulator(two);
  expect_invalid([&] { accumulator.mean(two); });
  expect_invalid([&] { accumulator.add(three, 1); });
  expect_invalid([&] { accumulator.add(doubles, 1); });
  expect_invalid([&] { accumulator.add(two, 0); });
  accumulator.add(two, 1);
  expect_invalid([&] { accumulator.mean(three); });
  expect_invalid([&] { accumulator.mean(doubles); });
  expect_invalid([] { GradientAccumulator(std::vector<int>(2)); });
  GradientAccumulator of_none(none);
  of_none.add(none, 3);
  of_none.mean(none);
  EXPECT_THAT(none, IsEmpty());
}

}  // namespace
}  // namespace motley::runtime
