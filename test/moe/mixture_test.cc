// The mixture of the language model against the reference layer, and with the same bits on any
// number of ranks and chunks.
#include "moe/language_model/mixture.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "moe/reference/gate.h"
#include "moe/reference_layer.h"
#include "test/moe/world_case.h"
#include "test/support/rank_runner.h"

namespace motley::moe {
namespace {

const LayerOptions kLayer = {
    .width = 5, .hidden = 7, .experts = 8, .top_k = 2, .activation = Activation::kGelu};

// All numbers of what a mixture computes for `tokens` of each rank, rank by rank.
struct Computed {
  std::vector<float> y, dx, dweight;
  std::vector<std::vector<float>> gradients = std::vector<std::vector<float>>(8);
};

Computed compute(int ranks, int degree, const std::vector<std::size_t>& tokens,
                 const ReferenceLayer& reference, const std::vector<double>& x) {
  std::vector<Computed> parts(static_cast<std::size_t>(ranks));
  test::run_ranks(ranks, [&](Communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    std::size_t first = 0;
    for (std::size_t r = 0; r < rank; ++r) first += tokens[r] * 5;
    const std::vector<float> mine(
        x.begin() + static_cast<std::ptrdiff_t>(first),
        x.begin() + static_cast<std::ptrdiff_t>(first + tokens[rank] * 5));
    const std::vector<double> wide(mine.begin(), mine.end());
    const auto gated =
        reference::gate_forward(kLayer, reference.parameter("gate").of(reference.values()), wide);
    Routing routing;
    routing.tokens = tokens[rank];
    routing.top_k = 2;
    routing.expert = gated.expert;
    routing.weight.assign(gated.weight.begin(), gated.weight.end());
    routing.count = gated.count;
    Mixture mixture(comm, Placement::grid({.experts = 8, .ranks = ranks}),
                    {.layer = kLayer, .degree = degree, .algorithm = {}});
    for (Mixture::Expert& expert : mixture.experts()) {
      const auto& w1 = reference.parameter("expert." + std::to_string(expert.expert) + ".w1");
      const auto slot = reference.values().subspan(w1.first, expert.values.size());
      expert.values.assign(slot.begin(), slot.end());
    }
    Computed& part = parts[rank];
    part.y.resize(mine.size());
    part.dx.resize(mine.size());
    part.dweight.resize(routing.expert.size());
    for (int repeat = 0; repeat < 2; ++repeat) {  // the second on memory that has been used
      mixture.forward(mine, routing, part.y);
      mixture.backward(part.y, part.dx, part.dweight);  // dy = y
    }
    for (const Mixture::Expert& expert : mixture.experts())
      part.gradients[static_cast<std::size_t>(expert.expert)] = expert.gradients;
  });
  Computed all;
  for (const Computed& part : parts) {
    all.y.insert(all.y.end(), part.y.begin(), part.y.end());
    all.dx.insert(all.dx.end(), part.dx.begin(), part.dx.end());
    all.dweight.insert(all.dweight.end(), part.dweight.begin(), part.dweight.end());
    for (std::size_t e = 0; e < 8; ++e)
      if (!part.gradients[e].empty()) all.gradients[e] = part.gradients[e];
  }
  return all;
}

TEST(Mixture, ComputesWhatTheReferenceDoesWithTheSameBitsOnAnyRanksAndChunks) {
  ReferenceLayer reference(kLayer);
  std::mt19937_64 random(8);
  reference.initialize(random);
  for (double& value : reference.values()) value = static_cast<float>(value);
  std::uniform_real_distribution<float> uniform(-2, 2);
  std::vector<double> x(12 * 5);
  for (double& value : x) value = uniform(random);
  const auto [y, saved] = reference.forward(x);
  const Gradients gradients = reference.backward(saved, y);

  const Computed one = compute(1, 1, {12}, reference, x);
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(one.y[i], y[i], 1e-5) << i;
  for (std::size_t e = 0; e < 8; ++e) {
    const auto& w1 = reference.parameter("expert." + std::to_string(e) + ".w1");
    for (std::size_t i = 0; i < one.gradients[e].size(); ++i)
      EXPECT_NEAR(one.gradients[e][i], gradients.parameters[w1.first + i], 1e-5) << e << " " << i;
  }
  const std::vector<std::vector<std::size_t>> splits = {
      {12}, {7, 5}, {0, 12}, {3, 3, 3, 3}, {12, 0, 0, 0}, {1, 0, 4, 1, 2, 0, 3, 1}};
  for (const auto& tokens : splits) {
    for (const int degree : {1, 2, 5}) {
      const Computed other = compute(static_cast<int>(tokens.size()), degree, tokens, reference, x);
      EXPECT_EQ(other.y, one.y) << tokens.size() << " ranks, degree " << degree;
      EXPECT_EQ(other.dx, one.dx);
      EXPECT_EQ(other.dweight, one.dweight);
      EXPECT_EQ(other.gradients, one.gradients);
    }
  }
}

// All gradients against double precision, of experts' choices that may be none.
TEST(Mixture, HasTheGradientsOfTheReference) {
  const World world =
      random_world({.shape = {.width = 5, .hidden = 7, .activation = Activation::kGelu}}, {12}, 4);
  const WorldResult want = reference_of(world);
  test::run_ranks(1, [&](Communicator& comm) {
    Mixture mixture(comm, Placement::grid({.experts = 8, .ranks = 1}),
                    {.layer = kLayer, .degree = 2, .algorithm = {}});
    for (std::size_t e = 0; e < 8; ++e) {
      const auto slot = world.slot(e);
      mixture.experts()[e].values.assign(slot.begin(), slot.end());
    }
    const Routing& routing = world.routing[0];
    std::vector<float> y(world.x[0].size()), dx(y.size()), dweight(routing.expert.size());
    mixture.forward(world.x[0], routing, y);
    mixture.backward(world.dy[0], dx, dweight);
    const auto near = [](const std::vector<float>& got, std::span<const double> wanted) {
      ASSERT_EQ(got.size(), wanted.size());
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-5) << i;
    };
    near(y, want.rank[0].y);
    near(dx, want.rank[0].dx);
    near(dweight, want.rank[0].dweight);
    const std::size_t count = world.shape.slot_count();
    for (std::size_t e = 0; e < 8; ++e) {
      near(mixture.experts()[e].gradients,
           std::span<const double>(want.gradients).subspan(e * count, count));
    }
  });
}

}  // namespace
}  // namespace motley::moe
