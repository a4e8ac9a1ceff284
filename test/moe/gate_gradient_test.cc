// Gradients of gates are central differences of <c, weights> + losses, evaluated in float64, by
// every number of x and every parameter; and the gradients of the parts of a batch are those of the
// whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "moe/gate.h"
#include "test/moe/gates.h"
#include "test/support/errors.h"

namespace motley::moe {
namespace {

constexpr float kStep = 0x1p-12f;
constexpr double kLossGradient = 0.75;  // d(objective)/d(losses)

struct Gradients {
  std::vector<float> parameters, dx;
};

Gradients gradients_of(const Gate& gate, const GateInput& input, const std::vector<float>& c,
                       const BalanceStatistics* all = nullptr) {
  const GateForward gated = gate.forward(input);
  Gradients out{std::vector<float>(gate.parameters().size(), 0.0f),
                std::vector<float>(input.x.size(), 0.0f)};
  gate.backward(input, gated,
                {.dweight = c,
                 .statistics = all != nullptr ? *all : gated.statistics,
                 .dloss = kLossGradient},
                {out.parameters, out.dx});
  return out;
}

class GateGradient : public ::testing::TestWithParam<std::string> {};

TEST_P(GateGradient, IsThatOfCentralDifferences) {
  std::mt19937_64 random(5);
  const auto gate = random_gate(GetParam(), random);
  GateBatch batch(*gate, 9, random);
  std::vector<float> c(9 * static_cast<std::size_t>(gate->options().top_k));
  std::ranges::copy(coarse_numbers(c.size(), random), c.begin());
  const std::vector<std::int32_t> chosen = gate->forward(batch.input()).routing.expert;
  const Gradients gradient = gradients_of(*gate, batch.input(), c);

  int flipped = 0;
  const auto expect = [&](float& number, float got, const std::string& what) {
    const float before = number;
    double value[2];
    for (const int side : {0, 1}) {
      number = before + (side == 0 ? kStep : -kStep);
      const GateForward gated = gate->forward(batch.input());
      if (gated.routing.expert != chosen) {
        ++flipped;
        number = before;
        return;
      }
      value[side] = kLossGradient * gate->losses(gated.statistics).total();
      for (std::size_t i = 0; i < c.size(); ++i) value[side] += c[i] * gated.saved.weight[i];
    }
    number = before;
    const double want = (value[0] - value[1]) / (2 * double{kStep});
    EXPECT_NEAR(got, want, 2e-6 * std::max(1.0, std::abs(want))) << what;
  };
  for (std::size_t i = 0; i < batch.x.size(); ++i) {
    expect(batch.x[i], gradient.dx[i], "x[" + std::to_string(i) + "]");
  }
  for (const ParameterInfo& part : gate->layout()) {
    for (std::size_t i = part.first; i < part.first + part.count; ++i) {
      expect(gate->parameters()[i], gradient.parameters[i], part.name);
    }
  }
  EXPECT_LE(flipped, 4);  // a choice that is this near to another has no difference to compare with
}

// However a batch is split over ranks and micro-batches, the losses and their gradients are those
// of the whole, from the sums over all. Parts of 0, 1, 4 and 7 tokens.
TEST_P(GateGradient, M19_IsTheSameHoweverTheBatchIsSplit) {
  const std::size_t sizes[] = {0, 1, 4, 7};
  std::mt19937_64 random(6);
  const auto gate = random_gate(GetParam(), random);
  const bool by_batch =
      gate->options().kind == GateKind::kBase || gate->options().kind == GateKind::kTopologyLimited;
  const GateBatch batch(*gate, 12, random);
  const auto k = static_cast<std::size_t>(gate->options().top_k);
  const std::vector<float> c = coarse_numbers(12 * k, random);
  const GateMode mode = by_batch ? GateMode::kEvaluate : GateMode::kTrain;
  const GateForward whole = gate->forward(batch.input(mode));
  const Gradients want = gradients_of(*gate, batch.input(mode), c);

  BalanceStatistics all(gate->options().experts);
  std::size_t first = 0;
  for (const std::size_t size : sizes) {
    all.add(gate->forward(batch.part(first, size, mode)).statistics);
    first += size;
  }
  for (std::size_t i = 0; i < all.sums().size(); ++i) {
    EXPECT_NEAR(all.sums()[i], whole.statistics.sums()[i], 1e-12 * (1 + all.sums()[i]));
  }
  Gradients got{std::vector<float>(want.parameters.size(), 0.0f), {}};
  first = 0;
  for (const std::size_t size : sizes) {
    const std::vector<float> mine(c.begin() + static_cast<std::ptrdiff_t>(first * k),
                                  c.begin() + static_cast<std::ptrdiff_t>((first + size) * k));
    const Gradients part = gradients_of(*gate, batch.part(first, size, mode), mine, &all);
    got.dx.insert(got.dx.end(), part.dx.begin(), part.dx.end());
    for (std::size_t i = 0; i < got.parameters.size(); ++i) {
      got.parameters[i] += part.parameters[i];
    }
    first += size;
  }
  ASSERT_EQ(got.dx.size(), want.dx.size());
  for (std::size_t i = 0; i < got.dx.size(); ++i) EXPECT_NEAR(got.dx[i], want.dx[i], 1e-6) << i;
  for (std::size_t i = 0; i < got.parameters.size(); ++i) {
    EXPECT_NEAR(got.parameters[i], want.parameters[i], 1e-5) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GateGradient, ::testing::ValuesIn(kGates));

TEST(GateGradients, AreAddedToWhatIsThere) {
  std::mt19937_64 random(1);
  const auto gate = random_gate(kGates[0], random);
  const GateBatch batch(*gate, 3, random);
  const std::vector<float> c = coarse_numbers(6, random);
  const GateForward gated = gate->forward(batch.input());
  std::vector<float> parameters(gate->parameters().size(), 1.0f);
  std::vector<float> dx(batch.x.size(), 2.0f);
  gate->backward(batch.input(), gated, {.dweight = c, .statistics = gated.statistics},
                 {parameters, dx});
  const Gradients fresh = gradients_of(*gate, batch.input(), c);
  for (std::size_t i = 0; i < dx.size(); ++i) EXPECT_NEAR(dx[i], 2 + fresh.dx[i], 1e-6);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_NEAR(parameters[i], 1 + fresh.parameters[i], 1e-6);
  }
  test::expect_error(ErrorCode::kInvalid, {"dweight", "5", "6"}, [&] {
    gate->backward(batch.input(), gated,
                   {.dweight = std::span(c).first(5), .statistics = gated.statistics},
                   {parameters, dx});
    return 0;
  });
  test::expect_error(ErrorCode::kInvalid, {"dx", "14", "15"}, [&] {
    gate->backward(batch.input(), gated, {.dweight = c, .statistics = gated.statistics},
                   {parameters, std::span(dx).first(14)});
    return 0;
  });
}

}  // namespace
}  // namespace motley::moe
