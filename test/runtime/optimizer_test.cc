// Shows that optimizers follow the published rules, by cases worked by hand; in float and double.
#include "runtime/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "test/support/errors.h"

namespace motley::runtime {
namespace {

using test::expect_invalid;
using ::testing::Each;
using ::testing::ElementsAre;

template <class T>
class OptimizerTest : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(OptimizerTest, Types);

TYPED_TEST(OptimizerTest, SgdStepsAgainstTheGradient) {
  using T = TypeParam;
  std::vector<T> x = {1, -2, 4}, g = {2, 4, 0};
  Sgd sgd({.learning_rate = 0.25});
  sgd.update(x, g);
  EXPECT_THAT(x, ElementsAre(T(0.5), T(-3), T(4)));
  // Decay: x - 0.25 * (g + 0.5 x) = 0.5 - 0.25 * 2.25, -3 - 0.25 * 2.5, 4 - 0.25 * 2.
  Sgd decay({.learning_rate = 0.25, .l2 = 0.5});
  decay.update(x, g);
  EXPECT_THAT(x, ElementsAre(T(-0.0625), T(-3.625), T(3.5)));
  EXPECT_EQ(sgd.state().count, 0u);
}

// G: 9, then 9 + 16 = 25: the steps are 0.5 * 3 / 3 and 0.5 * 4 / 5. Numbers with exact roots.
TYPED_TEST(OptimizerTest, AdaGradDividesByTheRootOfTheSumOfSquares) {
  using T = TypeParam;
  std::vector<T> x = {1, 1}, g = {3, 0};
  AdaGrad adagrad(x, {.learning_rate = 0.5, .epsilon = 0});
  adagrad.update(x, g);
  EXPECT_THAT(x, ElementsAre(T(0.5), T(1)));  // no gradient: no move, although G = 0
  g = {4, 0};
  adagrad.update(x, g);
  EXPECT_NEAR(static_cast<double>(x[0]), 0.1, 1e-7);
  EXPECT_EQ(x[1], T(1));
  EXPECT_EQ(adagrad.state().template as<T>()[0], T(25));
}

// G = 7 + 3^2 = 16; the step is 1 * 3 / (4 + 2), of which 3 = 1 + 0.5 * 4 is gradient and decay.
TYPED_TEST(OptimizerTest, AdaGradCountsEveryOption) {
  using T = TypeParam;
  std::vector<T> x = {4}, g = {1};
  AdaGrad adagrad(x, {.learning_rate = 1, .l2 = 0.5, .initial_accumulator = 7, .epsilon = 2});
  adagrad.update(x, g);
  EXPECT_EQ(x[0], T(3.5));
}

TYPED_TEST(OptimizerTest, NothingIsUpdatedToNothing) {
  std::vector<TypeParam> none;
  Sgd({}).update(none, none);
  AdaGrad(none, {}).update(none, none);
}

TEST(Optimizer, RejectsWhatDoesNotFit) {
  std::vector<float> three(3), four(4);
  std::vector<double> doubles(3);
  std::vector<int> integers(3);
  AdaGrad adagrad(three, {});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { Sgd({}).update(three, four); }, [&] { Sgd({}).update(three, doubles); },
           [&] { Sgd({}).update(integers, integers); }, [&] { adagrad.update(four, four); },
           [&] { adagrad.update(doubles, doubles); }, [&] { AdaGrad(integers, {}); },
           [&] { Sgd({.learning_rate = -1}); }, [&] { Sgd({.l2 = nan}); },
           [&] { AdaGrad(three, {.epsilon = -1}); }}) {
    expect_invalid(call);
  }
  EXPECT_THAT(three, Each(0.0f));
}

}  // namespace
}  // namespace motley::runtime
