// The layer over several ranks equals the same in one thread and double precision, outputs and all
// gradients, for every way of sharing experts among ranks and wherever there are no tokens; bits
// depend on nothing; what is wrong on one rank is an error on all. Numbers of scenarios are those
// of the list of what users of other libraries reported. All buffers are full of NaN before.
#include "moe/expert_layer.h"

#include <gmock/gmock.h>

#include <functional>

#include "comm/topology.h"
#include "test/moe/world_case.h"
#include "test/support/errors.h"
#include "test/support/rank_runner.h"

namespace motley::moe {
namespace {

using test::expect_error;
using test::run_ranks;

// Two hosts of four ranks, and every way to share 8 experts: the reference's outputs and gradients,
// and one set of bits.
TEST(Scenario, M17_M34_EveryLayoutOf8RanksIsRightAndHasOneSetOfBits) {
  const World world = random_world({}, {5, 4, 0, 7, 1, 3, 6, 2}, 17);
  const WorldResult want = reference_of(world);
  run_ranks(8, [&](Communicator& comm) {
    comm.use_topology(Topology::hosts({0, 0, 0, 0, 1, 1, 1, 1}, {}));
    for (const int replicas : {1, 2, 4, 8}) {
      for (const int shards : {1, 2, 4, 8}) {
        if (replicas * shards > 8) continue;
        SCOPED_TRACE(testing::Message() << replicas << " replicas, " << shards << " shards");
        expect_one_set_of_bits(
            comm,
            Placement::grid({.experts = 8, .ranks = 8, .replicas = replicas, .shards = shards}),
            world, want);
      }
    }
  });
}

TEST(Scenario, M17_AMeanOverRanksScalesExpertsAsAllElse) {
  const World world = random_world({}, {3, 2, 4, 1}, 3);
  WorldResult want = reference_of(world);
  for (double& g : want.gradients) g /= 4;
  run_ranks(4, [&](Communicator& comm) {
    for (const int replicas : {1, 2, 4}) {
      expect_right(comm, Placement::grid({.experts = 8, .ranks = 4, .replicas = replicas}), world,
                   want, {.gradient_scale = 0.25f});
    }
  });
}

// `world`, in which no choice is of an expert outside of `wanted`.
World without(World world, unsigned wanted) {
  for (Routing& routing : world.routing) {
    for (std::size_t i = 0; i < routing.expert.size(); ++i) {
      const std::int32_t e = routing.expert[i];
      if (e == kNoExpert || (wanted >> e & 1) != 0) continue;
      routing.expert[i] = kNoExpert;
      routing.weight[i] = 0;
    }
    count_choices(routing, world.experts);
  }
  return world;
}

// 2^8 sets of experts, of which each rank has two.
TEST(Scenario, M01_M11_EverySetOfExpertsWithoutTokens) {
  const World all = random_world({}, {6, 5, 7, 6}, 1);
  std::vector<World> worlds;
  std::vector<WorldResult> wanted;
  for (unsigned mask = 0; mask < 256; ++mask) {
    worlds.push_back(without(all, mask));
    wanted.push_back(reference_of(worlds.back()));
  }
  const Placement placement = Placement::grid({.experts = 8, .ranks = 4});
  run_ranks(4, [&](Communicator& comm) {
    ExpertLayer layer = layer_of(comm, placement, all);
    const auto rank = static_cast<std::size_t>(comm.rank());
    for (unsigned mask = 0; mask < 256; ++mask) {
      SCOPED_TRACE(mask);
      expect_equal(layer, run_step(layer, worlds[mask], rank), wanted[mask], rank);
    }
  });
}

TEST(Scenario, M01_EverySetOfRanksWithoutTokens) {
  const Placement placement = Placement::grid({.experts = 8, .ranks = 4, .replicas = 2});
  for (unsigned mask = 0; mask < 16; ++mask) {
    SCOPED_TRACE(mask);
    std::vector<std::size_t> tokens;
    for (unsigned r = 0; r < 4; ++r) tokens.push_back((mask >> r & 1) != 0 ? 3 + r : 0);
    const World world = random_world({}, tokens, 100 + mask);
    const WorldResult want = reference_of(world);
    run_ranks(4, [&](Communicator& comm) { expect_right(comm, placement, world, want); });
  }
}

// An expert that nobody chose takes part in its reduction with zeros, whatever was there before.
TEST(Scenario, M04_IdleExpertsJoinTheirReductionWithZeros) {
  const World busy = random_world({}, {6, 5, 7, 6}, 4);
  const World idle = without(busy, 0);
  run_ranks(4, [&](Communicator& comm) {
    ExpertLayer layer =
        layer_of(comm, Placement::grid({.experts = 8, .ranks = 4, .replicas = 4}), busy);
    run_step(layer, busy, static_cast<std::size_t>(comm.rank()));
    EXPECT_THAT(run_step(layer, idle, static_cast<std::size_t>(comm.rank())).gradients,
                testing::Each(0.0f));
  });
}

// The calls of all ranks, whatever their tokens want.
std::vector<std::string> calls_of(const Communicator& comm) {
  std::vector<std::string> calls;
  for (const CallRecord& call : comm.recorder().last()) {
    calls.push_back(testing::PrintToString(static_cast<int>(call.kind)) + " " + call.algorithm);
  }
  return calls;
}

TEST(Scenario, M05_TheSameCallsOnAllRanksForAnyRouting) {
  std::vector<std::vector<std::string>> calls(4);
  run_ranks(4, [&](Communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    for (const unsigned wanted : {0xffu, 0x00u, 0x01u, 0xc0u}) {
      const World world = without(random_world({}, {2, 0, 9, 1}, wanted), wanted);
      ExpertLayer layer =
          layer_of(comm, Placement::grid({.experts = 8, .ranks = 4}), world,
                   {.exchange = {.kind = ExchangeKind::kFlat, .degree = 2, .piece_rows = 1}});
      run_step(layer, world, rank);
      EXPECT_EQ(layer.counters().count_exchanges, 1);
      EXPECT_EQ(layer.counters().exchanges, 2 * 2 * 2);
    }
    calls[rank] = calls_of(comm);
  });
  for (const auto& of_rank : calls) EXPECT_EQ(of_rank, calls[0]);
  EXPECT_GE(calls[0].size(), 4u * 9);
}

// max + 1 is the same clean error on every rank, which go on afterwards.
TEST(Scenario, M07_TokensPerRankUpToTheMaximumAndOneMore) {
  constexpr std::size_t kMost = 6;
  run_ranks(4, [&](Communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    const World base = random_world({}, {0, 1, kMost, kMost - 1}, 7);
    ExpertLayer layer = layer_of(comm, Placement::grid({.experts = 8, .ranks = 4}), base,
                                 {.exchange = {.most_tokens = kMost}});
    for (std::size_t guilty = 0; guilty < 4; ++guilty) {
      std::vector<std::size_t> tokens = {0, 1, kMost, kMost - 1};
      tokens[guilty] = kMost + 1;
      const World world = random_world({}, tokens, 8);
      Floats y(world.x[rank].size());
      const ExpertLayerInput input{.x = world.x[rank], .routing = world.routing[rank]};
      expect_invalid([&] { layer.forward(input, y); },
                     {"rank " + std::to_string(guilty), "7 tokens", "most_tokens is 6"});
    }
    expect_equal(layer, run_step(layer, base, rank), reference_of(base), rank);
  });
}

TEST(ExpertLayer, AnErrorOfOneRankIsAnErrorOnAll) {
  const World world = random_world({}, {3, 3, 3}, 5);
  run_ranks(3, [&](Communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    ExpertLayer layer = layer_of(comm, Placement::grid({.experts = 8, .ranks = 3}), world);
    Routing routing = world.routing[rank];
    if (rank == 1) {
      routing.expert[0] = 8;
      routing.weight[0] = 1;
    }
    Floats y(world.x[rank].size());
    expect_invalid([&] { layer.forward({.x = world.x[rank], .routing = routing}, y); },
                   {rank == 1 ? "8" : "rank 1 has no plan"});
    expect_equal(layer, run_step(layer, world, rank), reference_of(world), rank);
  });
}

TEST(ExpertLayer, PlansThatDoNotGoTogetherAreFoundOut) {
  const World world = random_world({}, {3, 3}, 5);
  run_ranks(2, [&](Communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    const Placement placement =
        Placement::grid({.epoch = static_cast<std::uint64_t>(rank), .experts = 8, .ranks = 2});
    ExpertLayer layer = layer_of(comm, placement, world);
    Floats y(world.x[rank].size());
    try {
      layer.forward({.x = world.x[rank], .routing = world.routing[rank]}, y);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kMismatch) << error.what();
    }
  });
}

// Epochs with more physical experts than the exchange's, with fewer, and of another rank.
TEST(Exchange, RefusesAPlanOfAnotherPlacementOnAllRanks) {
  const World world = random_world({}, {3, 3}, 5);
  run_ranks(2, [&](Communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    const auto placed = [](std::uint64_t epoch, int replicas) {
      return Placement::grid({.epoch = epoch, .experts = 8, .ranks = 2, .replicas = replicas});
    };
    const auto plan_of = [&](const Placement& placement, int of) {
      return make_plan({.routing = world.routing[rank],
                        .placement = placement,
                        .chooser = *local_first_chooser(),
                        .rank = of});
    };
    const Placement one = placed(1, 1), more = placed(2, 2);
    const Plan small = plan_of(one, comm.rank()), large = plan_of(more, comm.rank());
    for (const ExchangeKind kind : {ExchangeKind::kFlat, ExchangeKind::kPerHost}) {
      Exchange exchange(comm, one, {.kind = kind}), wide(comm, more, {.kind = kind});
      const auto refused = [&](Exchange& by, const Plan& plan, const std::string& fact) {
        expect_error(ErrorCode::kMismatch, {fact}, [&] { by.begin({.plan = &plan, .tokens = 3}); });
      };
      refused(exchange, large, "epoch 2");
      refused(wide, small, "epoch 1");
      // On one rank alone: the other hears of it.
      refused(exchange, rank == 1 ? large : small, rank == 1 ? "epoch 2" : "rank 1");
      refused(exchange, plan_of(one, 1 - comm.rank()), rank == 1 ? "rank 0" : "rank 1");
      exchange.begin({.plan = &small, .tokens = 3});
    }
  });
}

// Each option that the ranks' calls depend on, on rank 1 alone: no rank waits for another.
TEST(ExpertLayer, OptionsThatDifferAreFoundOutOnAllRanks) {
  const World world = random_world({}, {3, 3}, 5);
  using Change = std::function<void(ExpertLayerOptions&)>;
  const std::vector<Change> changes = {[](auto& o) { o.exchange.kind = ExchangeKind::kFlat; },
                                       [](auto& o) { o.exchange.degree = 2; },
                                       [](auto& o) { o.exchange.piece_rows = 7; },
                                       [](auto& o) { o.exchange.most_tokens = 2; },
                                       [](auto& o) { o.exchange.most_rows = 1; },
                                       [](auto& o) { o.shape.hidden = 16; },
                                       [](auto& o) { o.shape.activation = Activation::kRelu; },
                                       [](auto& o) { o.shape.form = ExpertForm::kGated; },
                                       [](auto& o) { o.products = Products::kOwn; },
                                       [](auto& o) { o.gradient_scale = 0.5f; },
                                       [](auto& o) { o.first_group = 9; },
                                       [](auto& o) { o.agreement = 1; }};
  run_ranks(2, [&](Communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    const Placement placement = Placement::grid({.experts = 8, .ranks = 2});
    Floats y(world.x[rank].size());
    for (std::size_t i = 0; i < changes.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "change " << i << ", rank " << rank);
      ExpertLayerOptions options{.shape = world.shape};
      if (rank == 1) changes[i](options);
      ExpertLayer layer(comm, placement, options);
      expect_error(ErrorCode::kMismatch, {"ranks 0 and 1", "options"},
                   [&] { layer.forward({.x = world.x[rank], .routing = world.routing[rank]}, y); });
    }
  });
}

TEST(Scenario, M08_AllTokensToOneExpert) {
  World world = random_world({}, {5, 9, 4, 6}, 8);
  for (Routing& routing : world.routing) {
    for (std::size_t i = 0; i < routing.expert.size(); ++i) {
      routing.expert[i] = i % 2 == 0 ? 5 : kNoExpert;
      routing.weight[i] = i % 2 == 0 ? 0.75f : 0.0f;
    }
    count_choices(routing, world.experts);
  }
  const WorldResult want = reference_of(world);
  run_ranks(4, [&](Communicator& comm) {
    const Placement placement = Placement::grid({.experts = 8, .ranks = 4});
    expect_right(comm, placement, world, want, {.exchange = {.most_rows = 24}});
    ExpertLayer layer = layer_of(comm, placement, world, {.exchange = {.most_rows = 23}});
    const auto rank = static_cast<std::size_t>(comm.rank());
    Floats y(world.x[rank].size());
    expect_invalid([&] { layer.forward({.x = world.x[rank], .routing = world.routing[rank]}, y); },
                   {"rank 2 would get 24 rows", "most_rows is 23"});
  });
}

// Choices of no expert name no row: none is read for them, and whole tokens of them give 0.
TEST(Scenario, M10_ChoicesOfNoExpertReadNothing) {
  World world = random_world({}, {4, 3}, 10);
  for (std::size_t j = 0; j < 2; ++j) {
    world.routing[0].expert[j] = kNoExpert;
    world.routing[0].weight[j] = 0;
  }
  count_choices(world.routing[0], world.experts);
  const WorldResult want = reference_of(world);
  run_ranks(2, [&](Communicator& comm) {
    ExpertLayer layer = layer_of(comm, Placement::grid({.experts = 8, .ranks = 2}), world);
    const auto rank = static_cast<std::size_t>(comm.rank());
    const Step step = run_step(layer, world, rank);
    expect_equal(layer, step, want, rank);
    if (rank == 0) {
      EXPECT_THAT(std::span(step.result.y).first(4), testing::Each(0.0f));
      EXPECT_THAT(std::span(step.result.dx).first(4), testing::Each(0.0f));
    }
  });
}

}  // namespace
}  // namespace motley::moe
