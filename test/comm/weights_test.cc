// What staleness costs a member of a group, for all rules: properties over thousands of random
// groups, the published rule's two defects, and the sketch by which models are compared.
#include "comm/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "comm/control/group_note.h"
#include "comm/group/sketch.h"
#include "test/support/errors.h"

namespace motley {
namespace {

using test::expect_error;
using testing::DoubleNear;
using testing::ElementsAre;

constexpr WeightRule kRules[] = {WeightRule::kUniform,    WeightRule::kExponential,
                                 WeightRule::kPolynomial, WeightRule::kHinge,
                                 WeightRule::kPublished,  WeightRule::kPublishedOldest};

std::vector<double> of(WeightRule rule, const std::vector<std::int64_t>& versions) {
  return weights({.rule = rule}, versions);
}

auto near(double a, double b, double c) {
  return ElementsAre(DoubleNear(a, 6e-4), DoubleNear(b, 6e-4), DoubleNear(c, 6e-4));
}

struct RandomGroup {
  explicit RandomGroup(std::uint64_t seed) : random(seed) {
    versions.resize(1 + random() % 9);
    const auto spread = static_cast<std::int64_t>(1 + random() % 100);
    for (auto& version : versions) {
      version = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(spread));
    }
    weighting = {.rule = kRules[random() % 6],
                 .lambda = 0.05 + 0.09 * static_cast<double>(random() % 10),
                 .slope = 0.25 * static_cast<double>(random() % 9),
                 .slack = static_cast<std::int64_t>(random() % 4),
                 .clip = static_cast<std::int64_t>(random() % 80)};
  }
  std::mt19937_64 random;
  std::vector<std::int64_t> versions;
  Weighting weighting;
};

// I12: weights sum to 1, are above 0, do not grow with staleness, are equal where versions are,
// and neither adding a constant nor another order of members changes them.
TEST(Invariant12, HoldsForRandomGroupsUnderEveryRule) {
  for (std::uint64_t seed = 1; seed <= 20'000; ++seed) {
    RandomGroup group(seed);
    const std::vector<double> w = weights(group.weighting, group.versions);
    ASSERT_NEAR(std::accumulate(w.begin(), w.end(), 0.0), 1, 1e-12) << "seed " << seed;
    for (const double weight : w) ASSERT_GT(weight, 0) << "seed " << seed;
    for (std::size_t i = 0; i < w.size(); ++i) {
      for (std::size_t j = 0; j < w.size(); ++j) {
        if (group.versions[i] == group.versions[j]) {
          ASSERT_EQ(w[i], w[j]) << "seed " << seed;
        }
        if (group.weighting.rule >= WeightRule::kPublished) continue;
        if (group.versions[i] > group.versions[j]) {
          ASSERT_GE(w[i], w[j]) << "seed " << seed;
        }
      }
    }
    std::vector<std::int64_t> moved = group.versions;
    for (auto& version : moved) version += 123'456'789;
    ASSERT_EQ(weights(group.weighting, moved), w) << "seed " << seed;
    std::vector<std::size_t> order(w.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), group.random);
    std::vector<std::int64_t> shuffled;
    for (const std::size_t i : order) shuffled.push_back(group.versions[i]);
    const std::vector<double> again = weights(group.weighting, shuffled);
    for (std::size_t i = 0; i < order.size(); ++i) ASSERT_NEAR(again[i], w[order[i]], 1e-15);
  }
}

TEST(Weights, AreWhatTheirRulesSay) {
  EXPECT_THAT(of(WeightRule::kUniform, {10, 3, 7}), near(1 / 3., 1 / 3., 1 / 3.));
  EXPECT_THAT(of(WeightRule::kExponential, {10, 9, 8}), near(.369, .332, .299));
  EXPECT_THAT(of(WeightRule::kExponential, {10, 10, 9}), near(.345, .345, .310));
  EXPECT_THAT(of(WeightRule::kExponential, {10, 10, 1}), near(.419, .419, .162));
  EXPECT_THAT(of(WeightRule::kExponential, {10, 8, 5}), near(.417, .337, .246));
  EXPECT_THAT(
      weights({.rule = WeightRule::kPolynomial, .slope = 1}, std::vector<std::int64_t>{5, 4, 2}),
      near(12 / 21., 6 / 21., 3 / 21.));  // 1, 1/2, 1/4
  EXPECT_THAT(weights({.rule = WeightRule::kHinge, .slope = 1, .slack = 2},
                      std::vector<std::int64_t>{5, 3, 2}),
              near(.4, .4, .2));  // 1, 1, 1/2
  EXPECT_EQ(
      weights({.rule = WeightRule::kExponential, .clip = 3}, std::vector<std::int64_t>{100, 0}),
      of(WeightRule::kExponential, {3, 0}));
  const auto least = std::numeric_limits<std::int64_t>::min();
  const auto most = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(of(WeightRule::kExponential, {least, most, most}), near(.0006, .4997, .4997));
}

TEST(Weights, OfThePublishedRuleAreThoseOfItsAuthors) {
  for (const WeightRule rule : {WeightRule::kPublished, WeightRule::kPublishedOldest}) {
    EXPECT_THAT(of(rule, {10, 10, 10}), near(.333, .333, .333));
    EXPECT_THAT(of(rule, {10, 9, 8}), near(.369, .332, .299));
  }
  EXPECT_THAT(of(WeightRule::kPublished, {10, 10, 1}), near(.470, .470, .060));
  EXPECT_THAT(of(WeightRule::kPublished, {10, 8, 5}), near(.701, .173, .126));
  EXPECT_THAT(of(WeightRule::kPublishedOldest, {10, 10, 1}), near(.077, .077, .846));
  EXPECT_THAT(of(WeightRule::kPublishedOldest, {10, 8, 5}), near(.213, .173, .614));
}

// Defect 1: the slot of a version is shared by those that have it. With two fresh members and one
// that is a step behind, the stale one has the largest weight.
TEST(PublishedRule, LetsTheStaleOutweighTheFresh) {
  const auto w = of(WeightRule::kPublished, {10, 10, 9});
  EXPECT_THAT(w, near(.263, .263, .474));
  EXPECT_GT(w[2], w[0]);
  const auto ours = of(WeightRule::kExponential, {10, 10, 9});
  EXPECT_LT(ours[2], ours[0]);
}

// Defect 2: what belongs to versions that nobody has goes to one end. A gap of nine versions makes
// the stale one nearly nothing or nearly all, as one reads the rule; and a gap in the middle
// changes the weights of members whose distance to the freshest has not changed.
TEST(PublishedRule, ChangesItsMeaningWhereVersionsAreMissing) {
  EXPECT_LT(of(WeightRule::kPublished, {10, 10, 1})[2], 0.1);
  EXPECT_GT(of(WeightRule::kPublishedOldest, {10, 10, 1})[2], 0.8);
  const auto dense = of(WeightRule::kPublished, {10, 9, 8});
  const auto gap = of(WeightRule::kPublished, {10, 9, 5});
  EXPECT_GT(gap[0] / gap[1], 1.5 * dense[0] / dense[1]);
  const auto ours_dense = of(WeightRule::kExponential, {10, 9, 8});
  const auto ours_gap = of(WeightRule::kExponential, {10, 9, 5});
  EXPECT_NEAR(ours_gap[0] / ours_gap[1], ours_dense[0] / ours_dense[1], 1e-12);
}

// Damped: symmetric, rows and columns sum to 1, nothing is negative, and no member keeps less of
// itself than its weight.
TEST(Damped, IsDoublyStochasticUnderEveryRule) {
  for (std::uint64_t seed = 1; seed <= 5'000; ++seed) {
    const RandomGroup group(seed);
    const std::vector<double> w = weights(group.weighting, group.versions);
    const std::vector<double> matrix = damped(w);
    const std::size_t p = w.size();
    for (std::size_t i = 0; i < p; ++i) {
      double row = 0, column = 0;
      for (std::size_t j = 0; j < p; ++j) {
        ASSERT_GE(matrix[i * p + j], 0);
        ASSERT_EQ(matrix[i * p + j], matrix[j * p + i]);
        row += matrix[i * p + j];
        column += matrix[j * p + i];
      }
      ASSERT_NEAR(row, 1, 1e-12) << "seed " << seed;
      ASSERT_NEAR(column, 1, 1e-12) << "seed " << seed;
      ASSERT_GE(matrix[i * p + i], w[i] - 1e-12) << "seed " << seed;
    }
  }
  EXPECT_THAT(damped(std::vector{0.5, 0.0, 0.5}),
              ElementsAre(0.5, 0, 0.5, 0.5, 0, 0.5, 0.5, 0, 0.5));  // the second gives nothing
}

// I3: uniform keeps the mean of all models; any rule moves it by (P/N) (weighted - plain mean of
// the group) if members take the weighted mean, and not at all if it is damped.
TEST(Invariant3, TheMeanMovesAsTheWeightsSay) {
  constexpr std::size_t kRanks = 12;
  for (std::uint64_t seed = 1; seed <= 2'000; ++seed) {
    RandomGroup group(seed);
    const std::size_t p = group.versions.size();
    std::vector<double> models(kRanks);
    for (double& model : models) model = static_cast<double>(group.random() % 1000);
    const double mean = std::accumulate(models.begin(), models.end(), 0.0) / kRanks;
    const std::vector<double> w = weights(group.weighting, group.versions);
    const double weighted = std::inner_product(w.begin(), w.end(), models.begin(), 0.0);
    const double plain =
        std::accumulate(models.begin(), models.begin() + static_cast<std::ptrdiff_t>(p), 0.0) /
        static_cast<double>(p);
    std::vector<double> after = models;
    std::fill_n(after.begin(), p, weighted);
    const double moved = std::accumulate(after.begin(), after.end(), 0.0) / kRanks - mean;
    ASSERT_NEAR(moved, static_cast<double>(p) / kRanks * (weighted - plain), 1e-9);
    if (group.weighting.rule == WeightRule::kUniform) {
      ASSERT_NEAR(moved, 0, 1e-9);
    }
    const std::vector<double> matrix = damped(w);
    for (std::size_t i = 0; i < p; ++i) {
      after[i] = std::inner_product(models.begin(), models.begin() + static_cast<std::ptrdiff_t>(p),
                                    matrix.begin() + static_cast<std::ptrdiff_t>(i * p), 0.0);
    }
    ASSERT_NEAR(std::accumulate(after.begin(), after.end(), 0.0) / kRanks, mean, 1e-9);
  }
}

TEST(Weights, RefuseBadParameters) {
  const auto refused = [](const Weighting& weighting, const char* fact) {
    expect_error(ErrorCode::kInvalid, {fact}, [&] { check(weighting); });
  };
  refused({.lambda = 0}, "lambda is 0");
  refused({.lambda = 1.5}, "lambda is 1.5");
  refused({.lambda = std::nan("")}, "lambda");
  refused({.rule = WeightRule::kPublished, .lambda = 1}, "lambda is 1");
  refused({.slope = -1}, "slope is -1");
  refused({.slack = -1}, "slack is -1");
  refused({.clip = -2}, "clip is -2");
  refused({.rule = static_cast<WeightRule>(9)}, "rule is 9");
  check({.lambda = 1});
}

TEST(Magnitude, SeesEveryNumberThatIsNoneOrLarge) {
  for (const std::size_t n :
       {std::size_t{0}, std::size_t{1}, std::size_t{4096}, std::size_t{9001}}) {
    // Of eight: the largest that are usual, but that float16 has room for all of its own.
    const float most = std::numeric_limits<float>::max() / 16;
    std::vector<float> singles(n, -most);
    std::vector<double> doubles(n, std::numeric_limits<double>::max() / 16);
    std::vector<half> halves(n, half(65504.f));
    std::vector<bfloat16> shorts(n, bfloat16(-0x1.fep123f));
    std::vector<std::int32_t> integers(n, -1);
    const auto all_are = [&](Magnitude is) {
      for (const ConstView& view : {ConstView(singles), ConstView(doubles), ConstView(shorts)}) {
        if (magnitude(view, 8) != is) return false;
      }
      return true;
    };
    EXPECT_TRUE(all_are(Magnitude::kUsual));
    EXPECT_EQ(magnitude(halves, 2048), Magnitude::kUsual);
    EXPECT_EQ(magnitude(integers, 8), Magnitude::kUsual);
    for (std::size_t i = 0; i < n; i += 1 + n / 7) {
      singles[i] = std::nextafter(most, 1e38f), doubles[i] = -1.2e307, shorts[i] = bfloat16(3e37f);
      EXPECT_TRUE(all_are(Magnitude::kLarge)) << i;
      singles[n - 1] = i % 2 == 0 ? std::numeric_limits<float>::infinity() : std::nanf("");
      doubles[n - 1] = -std::numeric_limits<double>::infinity();
      halves[i] = half(std::nanf("")), shorts[n - 1] = bfloat16(std::nanf(""));
      EXPECT_TRUE(all_are(Magnitude::kNotFinite)) << i;
      EXPECT_EQ(magnitude(halves, 2), Magnitude::kNotFinite) << i;
      for (const std::size_t j : {i, n - 1}) {
        singles[j] = 1, doubles[j] = 1, halves[j] = half(1.f), shorts[j] = bfloat16(1.f);
      }
    }
  }
}

// The distance of sketches is about that of models, however long they are.
TEST(Sketch, KeepsDistances) {
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal;
  for (const std::size_t n : {std::size_t{100}, std::size_t{10'000}, std::size_t{200'000}}) {
    double ratio = 0;
    constexpr int kTrials = 20;
    for (int trial = 0; trial < kTrials; ++trial) {
      std::vector<float> a(n), b(n);
      double exact = 0;
      for (std::size_t i = 0; i < n; ++i) {
        a[i] = normal(random);
        b[i] = a[i] + 0.1f * normal(random);
        exact += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
      }
      ratio += distance2(sketch_of(a), sketch_of(b)) / exact / kTrials;
    }
    EXPECT_NEAR(ratio, 1, 0.3) << n;  // 16 * 20 squares of normal numbers: 0.08 at one sigma
  }
  EXPECT_EQ(sketch_of(std::vector<float>{}), Sketch{});
}

TEST(GroupNote, SurvivesTheWire) {
  ReadyNote ready{
      .grouping = {.group_size = 3,
                   .largest_group = 5,
                   .linger = 0.25,
                   .guard = Guard::kNone,
                   .weighting = {.rule = WeightRule::kHinge, .slack = 9, .damped = true}},
      .version = -5,
      .gives = false,
      .large = true,
      .sketch = {1.5f, -2.5f},
      .moved = 3,
      .eta = seconds(0.5),
      .round_trip = seconds(0.25),
      .ahead = seconds(0.125)};
  EXPECT_EQ(decode_ready(encode(ready)), ready);
  const GroupNote group{
      .weights = {0.25, 0.75, 0}, .large = true, .version = 77, .donor = 4, .keepers = {7, 9}};
  EXPECT_EQ(decode_group(encode(group)), group);
  const std::string bytes = encode(ready);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    ASSERT_EQ(decode_ready(bytes.substr(0, size)), std::nullopt);
  }
  EXPECT_EQ(decode_ready(bytes + "x"), std::nullopt);
  EXPECT_EQ(decode_group(encode(group).substr(1)), std::nullopt);
  ready.sketch[3] = std::nanf("");
  EXPECT_EQ(decode_ready(encode(ready)), std::nullopt);
}

}  // namespace
}  // namespace motley
