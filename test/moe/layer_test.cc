// The layer with its gate, over several ranks, equals the reference layer on all tokens together:
// outputs, the balance loss and every gradient, the gate's too.
#include "moe/layer.h"

#include <gmock/gmock.h>

#include "test/moe/world_case.h"
#include "test/support/errors.h"
#include "test/support/rank_runner.h"

namespace motley::moe {
namespace {

using test::expect_error;
using test::run_ranks;

constexpr int kWidth = 4, kHidden = 8, kExperts = 8;
const std::vector<std::size_t> kTokens = {5, 0, 9, 4};

// All ranks' tokens one after another, through the reference.
struct Reference {
  ReferenceLayer layer{{.width = kWidth,
                        .hidden = kHidden,
                        .experts = kExperts,
                        .top_k = 2,
                        .activation = Activation::kSilu,
                        .weight = GateWeight::kNormalized,
                        .balance = BalanceLoss::kFirstChoice,
                        .balance_scale = 0.5}};
  Floats parameters, x, dy;
  Forward forward;
  Gradients gradients;

  explicit Reference(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::size_t tokens = 0;
    for (const std::size_t n : kTokens) tokens += n;
    parameters = random_floats(layer.values().size(), random);
    x = random_floats(tokens * kWidth, random);
    dy = random_floats(tokens * kWidth, random);
    std::copy(parameters.begin(), parameters.end(), layer.values().begin());
    forward = layer.forward(Numbers(x.begin(), x.end()));
    gradients = layer.backward(forward.saved, Numbers(dy.begin(), dy.end()));
  }
};

// The part of `all` that belongs to a rank's tokens.
template <class T>
std::span<const T> of_rank(const std::vector<T>& all, std::size_t rank) {
  std::size_t first = 0;
  for (std::size_t r = 0; r < rank; ++r) first += kTokens[r] * kWidth;
  return std::span(all).subspan(first, kTokens[rank] * kWidth);
}

void expect_reference(Communicator& comm, const Reference& reference, int replicas, int shards) {
  const auto rank = static_cast<std::size_t>(comm.rank());
  Layer layer(
      comm,
      Placement::grid(
          {.experts = kExperts, .ranks = comm.size(), .replicas = replicas, .shards = shards}),
      {.gate = {.width = kWidth,
                .experts = kExperts,
                .top_k = 2,
                .normalize = GateNormalize::kChosen,
                .losses = {.first_choice = 0.5}},
       .experts = {.shape = {.width = kWidth, .hidden = kHidden, .activation = Activation::kSilu},
                   .first_group = next_groups(comm),
                   .fill = Fill::kNan}});
  const std::span<const float> all = reference.parameters;
  const std::size_t gate = layer.gate().parameters().size();
  const std::size_t slot = layer.experts().options().shape.slot_count();
  ASSERT_EQ(gate + kExperts * slot, all.size());
  std::copy_n(all.begin(), gate, layer.gate().parameters().begin());
  for (int e = 0; e < kExperts; ++e) {
    layer.experts().load(e, all.subspan(gate + static_cast<std::size_t>(e) * slot, slot));
  }
  const std::span<const float> x = of_rank(reference.x, rank);
  Floats y(x.size()), dx(x.size());
  layer.forward({.x = x}, y);
  layer.backward(of_rank(reference.dy, rank), dx);
  layer.reduce_gradients();

  EXPECT_NEAR(layer.losses().total(), reference.forward.saved.routing.balance_loss, 1e-6);
  expect_close(y, of_rank(reference.forward.y, rank), "y");
  expect_close(dx, of_rank(reference.gradients.dx, rank), "dx");
  const std::span<const double> gradients = reference.gradients.parameters;
  expect_close(Floats(layer.gate_gradients().begin(), layer.gate_gradients().end()),
               gradients.first(gate), "gate");
  if (shards != 1) return;  // those of experts are compared in expert_layer_test
  for (std::size_t i = 0; i < layer.experts().experts().size(); ++i) {
    const auto e = static_cast<std::size_t>(layer.experts().experts()[i].expert);
    const std::span<const float> got = layer.experts().gradients().subspan(i * slot, slot);
    expect_close(Floats(got.begin(), got.end()), gradients.subspan(gate + e * slot, slot),
                 "expert");
  }
}

// Each option that is not as all others' is found out, those of the gate too.
TEST(Layer, RefusesGatesThatDiffer) {
  const std::vector<void (*)(GateOptions&)> changes = {
      [](auto& o) { o.kind = GateKind::kSam; },
      [](auto& o) { o.logits = GateLogits::kCosine, o.projection = 3; },
      [](auto& o) { o.score = GateScore::kSigmoid; },
      [](auto& o) { o.normalize = GateNormalize::kChosen; },
      [](auto& o) { o.weight_scale = 2; },
      [](auto& o) { o.jitter = 0.1; },
      [](auto& o) { o.noise = GateNoise::kConstant; },
      [](auto& o) { o.gumbel = GateGumbel::kAll; },
      [](auto& o) { o.groups = 2, o.top_groups = 2; },
      [](auto& o) { o.bias_rate = 0.1; },
      [](auto& o) { o.losses.first_choice = 1; },
      [](auto& o) { o.losses.z = 1; }};
  run_ranks(2, [&](Communicator& comm) {
    const Placement placement = Placement::grid({.experts = kExperts, .ranks = 2});
    const Floats x(3 * kWidth, 1);
    Floats y(x.size());
    for (std::size_t i = 0; i < changes.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "change " << i << ", rank " << comm.rank());
      LayerSettings settings{.gate = {.width = kWidth, .experts = kExperts, .top_k = 2},
                             .experts = {.shape = {.width = kWidth, .hidden = kHidden}}};
      if (comm.rank() == 1) changes[i](settings.gate);
      Layer layer(comm, placement, settings);
      expect_error(ErrorCode::kMismatch, {"ranks 0 and 1", "options"},
                   [&] { layer.forward({.x = x}, y); });
    }
  });
}

// The first has overwritten what a second would need.
TEST(Layer, RefusesASecondBackward) {
  run_ranks(2, [](Communicator& comm) {
    Layer layer(comm, Placement::grid({.experts = kExperts, .ranks = 2}),
                {.gate = {.width = kWidth, .experts = kExperts},
                 .experts = {.shape = {.width = kWidth, .hidden = kHidden}}});
    const Floats x(3 * kWidth, 1);
    Floats y(x.size()), dx(x.size());
    layer.forward({.x = x}, y);
    layer.backward(x, dx);
    expect_error(ErrorCode::kInvalid, {"backward", "Call forward"}, [&] { layer.backward(x, dx); });
  });
}

TEST(Layer, EqualsTheReferenceOnAllTokensTogether) {
  const Reference reference(5);
  run_ranks(4, [&](Communicator& comm) {
    expect_reference(comm, reference, 1, 1);
    expect_reference(comm, reference, 2, 1);
    expect_reference(comm, reference, 1, 2);
    expect_reference(comm, reference, 4, 1);
  });
}

// What rank 0's first seven tokens give, and get back, with so many others behind them and on the
// other rank.
Floats with_others(Communicator& comm, Layer& layer, std::size_t here, std::size_t there) {
  std::mt19937_64 random(27);
  const auto width = static_cast<std::size_t>(layer.experts().options().shape.width);
  const std::size_t watched = 7 * width;
  Floats x = random_floats(watched, random), dy = random_floats(watched, random);
  const std::size_t tokens = comm.rank() == 0 ? 7 + here : there;
  const Floats more = random_floats(tokens * width, random);
  x.insert(x.end(), more.begin(), more.end());
  dy.insert(dy.end(), more.begin(), more.end());
  x.resize(tokens * width);
  dy.resize(tokens * width);
  Floats y(x.size()), dx(x.size());
  layer.forward({.x = x}, y);
  layer.backward(dy, dx);
  if (comm.rank() != 0) return {};
  y.resize(watched);
  y.insert(y.end(), dx.begin(), dx.begin() + static_cast<std::ptrdiff_t>(watched));
  return y;
}

// A token's output and gradient do not depend on other tokens, of its rank or another, be its
// experts' rows one or hundreds: not by a bit where that is asked for, and never by more than the
// last bits. Sizes that no vector divides.
TEST(Scenario, M27_ATokensOutputDoesNotDependOnOtherTokens) {
  for (const Products products : {Products::kOwn, Products::kFastest}) {
    run_ranks(2, [&](Communicator& comm) {
      Layer layer(comm, Placement::grid({.experts = 4, .ranks = 2}),
                  {.gate = {.width = 20, .experts = 4, .top_k = 2},
                   .experts = {.shape = {.width = 20, .hidden = 37}, .products = products}});
      std::mt19937_64 random(28);
      layer.initialize(random);
      const Floats alone = with_others(comm, layer, 0, 0);
      for (const auto& [here, there] : std::vector<std::pair<std::size_t, std::size_t>>{
               {1, 0}, {0, 9}, {40, 30}, {0, 600}, {500, 2}}) {
        const Floats got = with_others(comm, layer, here, there);
        SCOPED_TRACE(testing::Message() << here << " and " << there << " others");
        expect_near(Numbers(got.begin(), got.end()), Numbers(alone.begin(), alone.end()), 1e-6,
                    "y, dx");
        EXPECT_TRUE(products != Products::kOwn || same_bits(got, alone));
      }
    });
  }
}

TEST(Layer, InitializesAlikeHoweverExpertsAreShared) {
  Floats alone;
  const LayerSettings settings{.gate = {.width = kWidth, .experts = kExperts},
                               .experts = {.shape = {.width = kWidth, .hidden = kHidden}}};
  run_ranks(1, [&](Communicator& comm) {
    Layer layer(comm, Placement::grid({.experts = kExperts, .ranks = 1}), settings);
    std::mt19937_64 random(9);
    layer.initialize(random);
    alone.assign(layer.experts().parameters().begin(), layer.experts().parameters().end());
  });
  run_ranks(2, [&](Communicator& comm) {
    Layer layer(comm, Placement::grid({.experts = kExperts, .ranks = 2}), settings);
    std::mt19937_64 random(9);
    layer.initialize(random);
    const std::span<float> half = layer.experts().parameters();
    const std::size_t first = static_cast<std::size_t>(comm.rank()) * half.size();
    EXPECT_TRUE(std::ranges::equal(half, std::span(alone).subspan(first, half.size())));
  });
}

TEST(Layer, WhatAGateRefusesOnOneRankIsAnErrorOnAll) {
  run_ranks(3, [&](Communicator& comm) {
    Layer layer(comm, Placement::grid({.experts = 3, .ranks = 3}),
                {.gate = {.width = kWidth, .experts = 3},
                 .experts = {.shape = {.width = kWidth, .hidden = kHidden}}});
    Floats x(kWidth, 1.0f), y(kWidth);
    if (comm.rank() == 2) x[1] = std::numeric_limits<float>::infinity();
    expect_invalid([&] { layer.forward({.x = x}, y); },
                   {comm.rank() == 2 ? "inf" : "rank 2 has no plan"});
    layer.forward({.x = Floats(kWidth, 1.0f)}, y);
  });
}

TEST(Layer, RefusesAGateThatDoesNotFit) {
  run_ranks(1, [](Communicator& comm) {
    expect_invalid(
        [&] {
          Layer(comm, Placement::grid({.experts = 3, .ranks = 1}),
                {.gate = {.width = kWidth, .experts = 4},
                 .experts = {.shape = {.width = kWidth, .hidden = kHidden}}});
        },
        {"gate's number of experts is 4", "3"});
  });
}

}  // namespace
}  // namespace motley::moe
