// Shows that optimizers follow the published rules, by cases worked by hand; in float and double.
#include "runtime/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
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

// The n-th item that `optimizer` lists.
template <class T>
T state_of(Optimizer& optimizer, std::size_t n = 0) {
  State state;
  optimizer.list(state);
  return state.items().at(n).data.template as<T>()[0];
}

TYPED_TEST(OptimizerTest, SgdStepsAgainstTheGradient) {
  using T = TypeParam;
  std::vector<T> x = {1, -2, 4}, g = {2, 4, 0};
  Sgd sgd(x, {.learning_rate = 0.25});
  sgd.update(x, g);
  EXPECT_THAT(x, ElementsAre(T(0.5), T(-3), T(4)));
  // Decay: x - 0.25 * (g + 0.5 x) = 0.5 - 0.25 * 2.25, -3 - 0.25 * 2.5, 4 - 0.25 * 2.
  Sgd decay(x, {.learning_rate = 0.25, .l2 = 0.5});
  decay.update(x, g);
  EXPECT_THAT(x, ElementsAre(T(-0.0625), T(-3.625), T(3.5)));
  State state;
  sgd.list(state);
  EXPECT_EQ(state.items().size(), 0u);
}

// In any order, with the bits of whole steps.
TYPED_TEST(OptimizerTest, FollowsGradientsInParts) {
  using T = TypeParam;
  const std::vector<T> start = {1, -2, 4, 0, 3, -1, 2};
  const auto check = [&](auto make) {
    std::vector<T> whole = start, parts = start, g(start.size());
    const auto one = make(whole), other = make(parts);
    for (int step = 1; step <= 3; ++step) {
      for (std::size_t i = 0; i < g.size(); ++i) g[i] = static_cast<T>(0.3 * step + 0.1 * i);
      one->set_learning_rate(0.1 / step);
      other->set_learning_rate(0.1 / step);
      one->update(whole, g);
      other->begin_update();
      other->update_part(parts, g, 5, 2);
      other->update_part(parts, g, 0, 4);
      other->update_part(parts, g, 4, 1);
      other->update_part(parts, g, 7, 0);
      EXPECT_EQ(parts, whole) << "step " << step;
    }
    expect_invalid([&] { other->update_part(parts, g, 6, 2); });
    expect_invalid([&] { other->update_part(parts, g, 8, 0); });
  };
  check([](View x) { return std::make_unique<Sgd>(x, SgdOptions{.momentum = 0.9}); });
  check([](View x) { return std::make_unique<AdaGrad>(x, AdaGradOptions{}); });
  check([](View x) { return std::make_unique<Adam>(x, AdamOptions{}); });
  check([](View x) { return std::make_unique<Ftrl>(x, FtrlOptions{.l1 = 0.01}); });
}

// v: 2, then 0.5 * 2 + 4 = 5. x: 1 - 0.25 * 2, then - 0.25 * 5; with nesterov 1 - 0.25 * (2 + 1),
// then - 0.25 * (4 + 2.5).
TYPED_TEST(OptimizerTest, SgdKeepsItsMomentum) {
  using T = TypeParam;
  std::vector<T> x = {1}, ahead = {1};
  Sgd sgd(x, {.learning_rate = 0.25, .momentum = 0.5});
  Sgd nesterov(x, {.learning_rate = 0.25, .momentum = 0.5, .nesterov = true});
  for (const T gradient : {T(2), T(4)}) {
    std::vector<T> g = {gradient};
    sgd.update(x, g);
    nesterov.update(ahead, g);
  }
  EXPECT_EQ(x[0], T(-0.75));
  EXPECT_EQ(ahead[0], T(-1.375));
  EXPECT_EQ(state_of<T>(sgd), T(5));
}

// Sutskever et al., equations 1 to 4, on f(x) = x^2 / 2, at a constant rate. Nesterov's x here is
// their point ahead, theta + momentum * v, at which they take the gradient.
TYPED_TEST(OptimizerTest, SgdFollowsSutskeversTrajectory) {
  using T = TypeParam;
  const double rate = 0.1, momentum = 0.9;
  std::vector<T> x = {1}, ahead = {1};
  Sgd sgd(x, {.learning_rate = rate, .momentum = momentum});
  Sgd nesterov(x, {.learning_rate = rate, .momentum = momentum, .nesterov = true});
  double theta1 = 1, v1 = 0, theta2 = 1, v2 = 0;
  for (int t = 0; t < 20; ++t) {
    v1 = momentum * v1 - rate * theta1;
    theta1 += v1;
    v2 = momentum * v2 - rate * (theta2 + momentum * v2);
    theta2 += v2;
    sgd.update(x, x);
    nesterov.update(ahead, ahead);
    EXPECT_NEAR(static_cast<double>(x[0]), theta1, 1e-6) << "step " << t;
    EXPECT_NEAR(static_cast<double>(ahead[0]), theta2 + momentum * v2, 1e-6) << "step " << t;
  }
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
  EXPECT_EQ(state_of<T>(adagrad), T(25));
}

// G = 7 + 3^2 = 16; the step is 1 * 3 / (4 + 2), of which 3 = 1 + 0.5 * 4 is gradient and decay.
TYPED_TEST(OptimizerTest, AdaGradCountsEveryOption) {
  using T = TypeParam;
  std::vector<T> x = {4}, g = {1};
  AdaGrad adagrad(x, {.learning_rate = 1, .l2 = 0.5, .initial_accumulator = 7, .epsilon = 2});
  adagrad.update(x, g);
  EXPECT_EQ(x[0], T(3.5));
}

// t = 1: m = 0.5 * 2, v = 0.25 * 4, unbiased 2 and 4: the step is 0.25 * 2 / 2. t = 2: m = 0.5 - 1,
// v = 0.75 + 1, unbiased -2/3 and 4: 0.25 * (2/3) / 2 back.
TYPED_TEST(OptimizerTest, AdamCorrectsTheBiasOfItsMoments) {
  using T = TypeParam;
  std::vector<T> x = {1, 1}, g = {2, 0};
  Adam adam(x, {.learning_rate = 0.25, .beta1 = 0.5, .beta2 = 0.75, .epsilon = 0});
  adam.update(x, g);
  EXPECT_THAT(x, ElementsAre(T(0.75), T(1)));
  g = {-2, 0};
  adam.update(x, g);
  EXPECT_NEAR(static_cast<double>(x[0]), 0.75 + 1.0 / 12, 1e-7);
  EXPECT_EQ(x[1], T(1));
  EXPECT_EQ(state_of<T>(adam, 0), T(-0.5));
  EXPECT_EQ(state_of<T>(adam, 1), T(1.75));
  EXPECT_EQ(state_of<std::int64_t>(adam, 2), 2);
}

// As above with epsilon 2: 0.25 * 2 / (2 + 2). L2 makes the gradient 1.5 + 0.5 * 1 = 2. Decoupled
// decay moves by 0.25 * 0.5 * 1 more, whatever the moments are.
TYPED_TEST(OptimizerTest, AdamCountsEveryOption) {
  using T = TypeParam;
  const auto after = [](T gradient, AdamOptions options) {
    options.learning_rate = 0.25;
    options.beta1 = 0.5;
    options.beta2 = 0.75;
    options.epsilon = 2;
    std::vector<T> x = {1}, g = {gradient};
    Adam(x, options).update(x, g);
    return x[0];
  };
  EXPECT_EQ(after(2, {}), T(0.875));
  EXPECT_EQ(after(T(1.5), {.l2 = 0.5}), T(0.875));
  EXPECT_EQ(after(2, {.weight_decay = 0.5}), T(0.75));
}

// N: 9, 25; sigma: 3, 2. z: 3, then 3 + 4 + 2 * 0.4 = 7.8. x: -(3 - 1) / (4 + 1), then
// -(7.8 - 1) / (6 + 1). The second parameter never gets past l1.
TYPED_TEST(OptimizerTest, FtrlFollowsAlgorithm1) {
  using T = TypeParam;
  std::vector<T> x = {0, 0}, g = {3, T(0.5)};
  Ftrl ftrl(x, {.learning_rate = 1, .beta = 1, .l1 = 1, .l2 = 1});
  ftrl.update(x, g);
  EXPECT_THAT(x, ElementsAre(T(-0.4), T(0)));
  g = {4, T(0.25)};
  ftrl.update(x, g);
  EXPECT_NEAR(static_cast<double>(x[0]), -6.8 / 7, 1e-6);
  EXPECT_EQ(x[1], T(0));
  EXPECT_NEAR(static_cast<double>(state_of<T>(ftrl, 0)), 7.8, 1e-6);
  EXPECT_EQ(state_of<T>(ftrl, 1), T(25));
}

// Section 3.1 of the paper: without l1 and l2, FTRL-proximal makes the steps of gradient descent,
// x -= eta * g; with beta = 0 that is AdaGrad. At rates that change, too.
TYPED_TEST(OptimizerTest, FtrlWithoutRegularisationIsAdaGrad) {
  using T = TypeParam;
  std::vector<T> x = {T(0.5), -2, 0}, same = x;
  Ftrl ftrl(x, {.learning_rate = 0.5, .beta = 0});
  AdaGrad adagrad(same, {.learning_rate = 0.5, .epsilon = 0});
  for (int t = 0; t < 10; ++t) {
    const double rate = 0.5 / (1 + t % 3);
    ftrl.set_learning_rate(rate);
    adagrad.set_learning_rate(rate);
    std::vector<T> g = {T(t - 4), T(0.25) * T(t), 0};
    ftrl.update(x, g);
    adagrad.update(same, g);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], same[i], 2e-5) << "step " << t;
  }
}

TYPED_TEST(OptimizerTest, FtrlBeginsAtItsParameters) {
  using T = TypeParam;
  std::vector<T> x = {4, -2, 0}, g = {0, 0, 0};
  Ftrl ftrl(x, {.learning_rate = 0.5, .beta = 1, .l1 = 1, .l2 = 2});
  ftrl.update(x, g);
  EXPECT_THAT(x, ElementsAre(T(4), T(-2), T(0)));
  ftrl.set_learning_rate(0);
  g = {1, 1, 1};
  ftrl.update(x, g);
  EXPECT_THAT(x, ElementsAre(T(4), T(-2), T(0)));
}

TYPED_TEST(OptimizerTest, NothingIsUpdatedToNothing) {
  std::vector<TypeParam> none;
  Sgd(none, {.momentum = 0.5}).update(none, none);
  AdaGrad(none, {}).update(none, none);
  Adam(none, {}).update(none, none);
  Ftrl(none, {}).update(none, none);
}

// Two halves of a run, the second by an optimizer whose state was copied, are the whole, bit for
// bit.
TYPED_TEST(OptimizerTest, GoesOnFromItsState) {
  using T = TypeParam;
  using Make = std::function<std::unique_ptr<Optimizer>(ConstView)>;
  for (const Make& make : std::vector<Make>{
           [](ConstView x) { return std::make_unique<Sgd>(x, SgdOptions{.momentum = 0.9}); },
           [](ConstView x) { return std::make_unique<AdaGrad>(x, AdaGradOptions{}); },
           [](ConstView x) { return std::make_unique<Adam>(x, AdamOptions{.weight_decay = 0.1}); },
           [](ConstView x) { return std::make_unique<Ftrl>(x, FtrlOptions{.l1 = 0.01}); }}) {
    const std::vector<T> start = {1, -2, T(0.5)};
    std::vector<T> x = start, y = start;
    const auto whole = make(x);
    const auto first = make(y);
    const auto second = make(start);
    const auto steps = [](Optimizer& optimizer, std::vector<T>& at) {
      for (int t = 0; t < 5; ++t) optimizer.update(at, std::vector<T>(at));
    };
    steps(*whole, x);
    steps(*whole, x);
    steps(*first, y);
    State from, to;
    first->list(from);
    second->list(to);
    ASSERT_FALSE(from.items().empty());
    for (const StateItem& item : from.items()) {
      std::ranges::copy(item.data.bytes(), to.find(item.name).data.bytes().begin());
    }
    steps(*second, y);
    EXPECT_EQ(x, y) << from.items()[0].name;
  }
}

TEST(Optimizer, RejectsWhatDoesNotFit) {
  std::vector<float> three(3), four(4);
  std::vector<double> doubles(3);
  std::vector<int> integers(3);
  AdaGrad adagrad(three, {});
  Sgd sgd(three, {});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { sgd.update(three, four); }, [&] { sgd.update(three, doubles); },
           [&] { Sgd(integers, {}); }, [&] { adagrad.update(four, four); },
           [&] { adagrad.update(doubles, doubles); }, [&] { AdaGrad(integers, {}); },
           [&] { sgd.set_learning_rate(nan); }, [&] { Sgd(three, {.learning_rate = -1}); },
           [&] { Sgd(three, {.l2 = nan}); }, [&] { Sgd(three, {.momentum = 1}); },
           [&] { Sgd(three, {.nesterov = true}); }, [&] { AdaGrad(three, {.epsilon = -1}); },
           [&] { Adam(three, {.beta1 = 1}); }, [&] { Adam(three, {.beta2 = -0.5}); },
           [&] { Adam(three, {.weight_decay = -1}); }, [&] { Ftrl(three, {.l1 = -1}); },
           [&] { Ftrl(three, {.learning_rate = 0}); }}) {
    expect_invalid(call);
  }
  test::expect_error(ErrorCode::kInvalid, {"3 float32", "4 float32", "gradients"},
                     [&] { sgd.update(three, four); });
  EXPECT_THAT(three, Each(0.0f));
}

}  // namespace
}  // namespace motley::runtime
