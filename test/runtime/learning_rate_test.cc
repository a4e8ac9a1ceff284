// Shows that learning rates warm up and fall as their formulas say, by samples and not by workers,
// and that generators of random numbers are functions of what they are for.
#include "runtime/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <vector>

#include "runtime/seed.h"
#include "test/support/errors.h"

namespace motley::runtime {
namespace {

TEST(LearningRate, WarmsUpLinearlyAndStays) {
  const LearningRate rate({.base = 0.5, .warmup_samples = 100, .warmup_start = 0.1});
  EXPECT_DOUBLE_EQ(rate.at(0), 0.1);
  EXPECT_DOUBLE_EQ(rate.at(50), 0.3);
  EXPECT_DOUBLE_EQ(rate.at(100), 0.5);
  EXPECT_DOUBLE_EQ(rate.at(1'000'000'000'000), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate({.base = 2}).at(0), 2);
}

TEST(LearningRate, FallsInSteps) {
  const LearningRate rate({.base = 8,
                           .warmup_samples = 10,
                           .decay = Decay::kStep,
                           .step_samples = 100,
                           .step_factor = 0.5});
  EXPECT_DOUBLE_EQ(rate.at(5), 4);
  EXPECT_DOUBLE_EQ(rate.at(99), 8);
  EXPECT_DOUBLE_EQ(rate.at(100), 4);
  EXPECT_DOUBLE_EQ(rate.at(350), 1);
}

// The way from 20 to 120: half of it at 70.
TEST(LearningRate, FallsAsAPolynomialOrACosine) {
  LearningRateOptions options{.base = 5,
                              .warmup_samples = 20,
                              .decay = Decay::kPolynomial,
                              .total_samples = 120,
                              .final = 1,
                              .power = 2};
  const LearningRate polynomial(options);
  EXPECT_DOUBLE_EQ(polynomial.at(20), 5);
  EXPECT_DOUBLE_EQ(polynomial.at(70), 1 + 4 * 0.25);
  EXPECT_DOUBLE_EQ(polynomial.at(120), 1);
  EXPECT_DOUBLE_EQ(polynomial.at(500), 1);
  options.decay = Decay::kCosine;
  const LearningRate cosine(options);
  EXPECT_DOUBLE_EQ(cosine.at(20), 5);
  EXPECT_DOUBLE_EQ(cosine.at(45), 1 + 2 * (1 + std::sqrt(0.5)));
  EXPECT_NEAR(cosine.at(70), 3, 1e-12);
  EXPECT_NEAR(cosine.at(120), 1, 1e-12);
  EXPECT_NEAR(cosine.at(500), 1, 1e-12);
}

TEST(LearningRate, RejectsWhatCannotBe) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const LearningRateOptions& options : std::vector<LearningRateOptions>{
           {.base = -1},
           {.base = nan},
           {.warmup_samples = -1},
           {.warmup_start = -1},
           {.decay = Decay::kStep},
           {.decay = Decay::kCosine},
           {.warmup_samples = 5, .decay = Decay::kPolynomial, .total_samples = 5},
           {.decay = Decay::kPolynomial, .total_samples = 5, .power = -1}}) {
    test::expect_invalid([&] { LearningRate{options}; });
  }
  test::expect_invalid([] { LearningRate({}).at(-1); });
}

// Any two of these differ in one thing only, some in nothing but where it stands.
TEST(Seed, GivesEachUseNumbersOfItsOwn) {
  std::set<std::uint64_t> drawn;
  int uses = 0;
  for (const std::uint64_t seed : {0u, 1u}) {
    for (const int rank : {0, 1, 2}) {
      for (const char* purpose : {"", "shuffle", "dropout", "shuffl", "ee"}) {
        for (const std::int64_t epoch : {0, 1, 101}) {
          std::mt19937_64 random =
              make_generator({.seed = seed, .rank = rank, .purpose = purpose, .epoch = epoch});
          for (int i = 0; i < 4; ++i) drawn.insert(random());
          ++uses;
        }
      }
    }
  }
  EXPECT_EQ(drawn.size(), 4u * static_cast<unsigned>(uses));
}

// What was drawn once must be drawn for ever, or a run cannot be repeated by a later version.
TEST(Seed, IsTheSameOnEveryMachine) {
  const Seed seed{.seed = 7, .rank = 3, .purpose = "shuffle", .epoch = 2};
  EXPECT_EQ(mix(seed), 0x7ac448fb2f05221au);
  EXPECT_EQ(make_generator(seed)(), std::mt19937_64(0x7ac448fb2f05221au)());
  // A single bit of the input changes about half of those of the output.
  for (int bit = 0; bit < 64; ++bit) {
    const std::uint64_t changed =
        mix({.seed = 7 ^ (std::uint64_t{1} << bit), .rank = 3, .purpose = "shuffle", .epoch = 2});
    EXPECT_NEAR(__builtin_popcountll(changed ^ mix(seed)), 32, 20) << bit;
  }
}

}  // namespace
}  // namespace motley::runtime
