// test/moe/world_case.h: a layer over several ranks, and the same in one thread and double
// precision.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "moe/expert_layer.h"
#include "moe/expert_shards.h"
#include "moe/reference/expert.h"
#include "test/moe/layer_cases.h"
#include "test/moe/routings.h"

namespace motley::moe {

using Floats = std::vector<float>;

inline Floats random_floats(std::size_t count, std::mt19937_64& random, double scale = 1) {
  Floats floats;
  for (const double x : random_numbers(count, random)) {
    floats.push_back(static_cast<float>(x * scale));
  }
  return floats;
}

// What each rank brings, and all experts' parameters.
struct World {
  ExpertShape shape{.width = 4, .hidden = 8, .activation = Activation::kSilu};
  int experts = 8;
  Floats parameters;  // [experts] slots
  std::vector<Routing> routing;
  std::vector<Floats> x, dy;

  std::span<const float> slot(std::size_t expert) const {
    return std::span(parameters).subspan(expert * shape.slot_count(), shape.slot_count());
  }
};

// `tokens` of each rank, routed at random.
inline World random_world(const World& like, const std::vector<std::size_t>& tokens,
                          std::uint64_t seed, int top_k = 2) {
  std::mt19937_64 random(seed);
  World world = like;
  world.parameters =
      random_floats(static_cast<std::size_t>(like.experts) * like.shape.slot_count(), random, 0.5);
  for (const std::size_t n : tokens) {
    world.routing.push_back(random_routing(n, like.experts, top_k, random));
    world.x.push_back(random_floats(n * static_cast<std::size_t>(like.shape.width), random));
    world.dy.push_back(random_floats(n * static_cast<std::size_t>(like.shape.width), random));
  }
  return world;
}

// What one rank gets.
template <class Real>
struct RankResult {
  std::vector<Real> y, dx, dweight;
};

struct WorldResult {
  std::vector<RankResult<double>> rank;
  Numbers gradients;  // [experts] slots, sums over all ranks
};

// Of plain experts, without drops.
inline WorldResult reference_of(const World& world) {
  const auto d = static_cast<std::size_t>(world.shape.width);
  const auto h = static_cast<std::size_t>(world.shape.hidden);
  const std::size_t slot = world.shape.slot_count();
  const Numbers parameters(world.parameters.begin(), world.parameters.end());
  WorldResult result{{}, Numbers(parameters.size(), 0.0)};
  for (std::size_t r = 0; r < world.x.size(); ++r) {
    const Routing& routing = world.routing[r];
    const Numbers x(world.x[r].begin(), world.x[r].end());
    const Numbers dy(world.dy[r].begin(), world.dy[r].end());
    RankResult<double>& out = result.rank.emplace_back();
    out.y.assign(x.size(), 0.0);
    out.dx.assign(x.size(), 0.0);
    for (std::size_t i = 0; i < routing.expert.size(); ++i) {
      out.dweight.push_back(0);
      if (routing.expert[i] == kNoExpert) continue;
      const std::size_t t = i / static_cast<std::size_t>(routing.top_k) * d;
      const std::size_t first = static_cast<std::size_t>(routing.expert[i]) * slot;
      const reference::ExpertSlot<reference::In> weights(
          reference::In(parameters).subspan(first, slot), d, h);
      Numbers hidden(h), output(d), doutput(d);
      const reference::In token = reference::In(x).subspan(t, d);
      reference::expert_forward(weights, world.shape.activation, token, {hidden, output});
      const double weight = routing.weight[i];
      for (std::size_t c = 0; c < d; ++c) {
        out.y[t + c] += weight * output[c];
        out.dweight.back() += dy[t + c] * output[c];
        doutput[c] = weight * dy[t + c];
      }
      reference::expert_backward(weights, world.shape.activation, {token, hidden, doutput},
                                 {{reference::Out(result.gradients).subspan(first, slot), d, h},
                                  reference::Out(out.dx).subspan(t, d)});
    }
  }
  return result;
}

// One forward, backward and reduction on one rank of `layer`.
struct Step {
  RankResult<float> result;
  Floats gradients;  // of this rank's slots
};

inline Step run_step(ExpertLayer& layer, const World& world, std::size_t rank) {
  const float kNan = std::numeric_limits<float>::quiet_NaN();
  const Floats& x = world.x[rank];
  Step step{{Floats(x.size(), kNan), Floats(x.size(), kNan),
             Floats(world.routing[rank].weight.size(), kNan)},
            {}};
  layer.forward({.x = x, .routing = world.routing[rank]}, step.result.y);
  layer.backward(world.dy[rank], {step.result.dx, step.result.dweight});
  layer.reduce_gradients();
  step.gradients.assign(layer.gradients().begin(), layer.gradients().end());
  return step;
}

// Counts the layers of a rank, so that each has groups of its own.
inline std::uint64_t next_groups(Communicator& comm) {
  return (std::uint64_t{1} << 32) + (std::uint64_t{comm.world().next_call()} << 8);
}

// A layer with the world's parameters, whose buffers are full of NaN.
inline ExpertLayer layer_of(Communicator& comm, const Placement& placement, const World& world,
                            ExpertLayerOptions options = {}) {
  options.shape = world.shape;
  options.fill = Fill::kNan;
  options.first_group = next_groups(comm);
  ExpertLayer layer(comm, placement, options);
  for (int e = 0; e < world.experts; ++e) {
    layer.load(e, world.slot(static_cast<std::size_t>(e)));
  }
  return layer;
}

inline void expect_close(const Floats& got, std::span<const double> want, const std::string& what) {
  expect_near(Numbers(got.begin(), got.end()), want, 1e-5, what);
}

inline void expect_equal(ExpertLayer& layer, const Step& step, const WorldResult& want,
                         std::size_t rank) {
  const std::string of = " of rank " + std::to_string(rank);
  expect_close(step.result.y, want.rank[rank].y, "y" + of);
  expect_close(step.result.dx, want.rank[rank].dx, "dx" + of);
  expect_close(step.result.dweight, want.rank[rank].dweight, "dweight" + of);
  const std::size_t whole = layer.options().shape.slot_count();
  const std::size_t part = layer.shard_shape().slot_count();
  for (std::size_t i = 0; i < layer.experts().size(); ++i) {
    const PhysicalExpert& mine = layer.experts()[i];
    const auto first = want.gradients.begin() + static_cast<std::ptrdiff_t>(whole) * mine.expert;
    const Floats slot(first, first + static_cast<std::ptrdiff_t>(whole));
    Floats shard(part);
    cut_shard(layer.options().shape, {mine.shard, mine.shards}, slot, shard);
    const auto got = step.gradients.begin() + static_cast<std::ptrdiff_t>(i * part);
    expect_close(Floats(got, got + static_cast<std::ptrdiff_t>(part)),
                 Numbers(shard.begin(), shard.end()),
                 "gradients of expert " + std::to_string(mine.expert) + of);
  }
}

inline constexpr ExchangeKind kKinds[] = {ExchangeKind::kAuto,      ExchangeKind::kFlat,
                                          ExchangeKind::kTwoLevel,  ExchangeKind::kLeader,
                                          ExchangeKind::kPipelined, ExchangeKind::kPerHost};

inline void expect_right(Communicator& comm, const Placement& placement, const World& world,
                         const WorldResult& want, const ExpertLayerOptions& options = {}) {
  ExpertLayer layer = layer_of(comm, placement, world, options);
  const auto rank = static_cast<std::size_t>(comm.rank());
  expect_equal(layer, run_step(layer, world, rank), want, rank);
}

inline bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}
inline bool same_bits(const Step& a, const Step& b) {
  return same_bits(a.result.y, b.result.y) && same_bits(a.result.dx, b.result.dx) &&
         same_bits(a.result.dweight, b.result.dweight) && same_bits(a.gradients, b.gradients);
}

// 20 steps of one layer, every exchange and several degrees and numbers of threads: right, and one
// set of bits. Pieces of few rows, so that every degree has several chunks with rows.
inline void expect_one_set_of_bits(Communicator& comm, const Placement& placement,
                                   const World& world, const WorldResult& want) {
  const auto rank = static_cast<std::size_t>(comm.rank());
  const auto layer_with = [&](ExchangeKind kind, int degree) {
    return layer_of(comm, placement, world,
                    {.exchange = {.kind = kind, .degree = degree, .piece_rows = 4},
                     .threads = degree == 3 ? 2 : 1});
  };
  ExpertLayer layer = layer_with(ExchangeKind::kAuto, 1);
  const Step first = run_step(layer, world, rank);
  expect_equal(layer, first, want, rank);
  for (int repeat = 1; repeat < 20; ++repeat) {
    EXPECT_TRUE(same_bits(first, run_step(layer, world, rank))) << "repeat " << repeat;
  }
  for (const ExchangeKind kind : kKinds) {
    for (const int degree : {1, 2, 3, 8}) {
      ExpertLayer other = layer_with(kind, degree);
      EXPECT_TRUE(same_bits(first, run_step(other, world, rank)))
          << name(kind) << ", degree " << degree;
    }
  }
}

}  // namespace motley::moe
