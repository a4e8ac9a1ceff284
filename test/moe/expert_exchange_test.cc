// How rows travel changes nothing but what travels: one set of bits for all exchanges, degrees,
// threads, orders of messages and late ranks, and all options together. Numbers of scenarios as in
// expert_layer_test.cc.
#include <gmock/gmock.h>

#include "comm/topology.h"
#include "moe/expert_layer.h"
#include "test/moe/world_case.h"
#include "test/support/rank_runner.h"
#include "test/support/simulation.h"

namespace motley::moe {
namespace {

using test::run_ranks;

// Two hosts of two ranks.
TEST(Scenario, M23_M34_M35_BitsDependOnNothing) {
  const World world = random_world({}, {40, 23, 0, 31}, 35);
  const WorldResult want = reference_of(world);
  run_ranks(4, [&](Communicator& comm) {
    comm.use_topology(Topology::hosts({0, 0, 1, 1}, {}));
    for (const int replicas : {1, 2}) {
      SCOPED_TRACE(testing::Message() << replicas << " replicas");
      expect_one_set_of_bits(
          comm, Placement::grid({.experts = 8, .ranks = 4, .replicas = replicas}), world, want);
    }
  });
}

// Whole experts in every number a rank can have, and every degree, beside one that is not
// pipelined.
TEST(Scenario, M25_EveryNumberOfExpertsAndDegree) {
  for (const int experts : {2, 4, 8}) {  // 1, 2, 4 a rank
    World like;
    like.experts = experts;
    const World world = random_world(like, {17, 21}, 25);
    run_ranks(2, [&](Communicator& comm) {
      const auto rank = static_cast<std::size_t>(comm.rank());
      Step whole;
      for (int degree = 1; degree <= 8; ++degree) {
        ExpertLayer layer = layer_of(comm, Placement::grid({.experts = experts, .ranks = 2}), world,
                                     {.exchange = {.degree = degree, .piece_rows = 2}});
        const Step step = run_step(layer, world, rank);
        if (degree == 1) whole = step;
        EXPECT_TRUE(same_bits(whole, step)) << experts << " experts, degree " << degree;
      }
    });
  }
}

// A rank that comes 30 s late is no failure where the timeout is 60 s; where it is 20 s the others
// say whom they waited for. In virtual time.
TEST(Scenario, M28_ARankThatIsLate) {
  const World world = random_world({}, {3, 4, 5}, 28);
  const WorldResult want = reference_of(world);
  for (const int patience : {60, 20}) {
    int failures = 0;
    test::run_simulated({.topology = Topology::uniform(3)},
                        [&](int r, std::unique_ptr<Transport> transport, Clock& clock) {
                          Communicator comm(std::move(transport), clock, {});
                          const auto rank = static_cast<std::size_t>(r);
                          ExpertLayer layer =
                              layer_of(comm, Placement::grid({.experts = 8, .ranks = 3}), world,
                                       {.exchange = {.timeout = std::chrono::seconds(patience)}});
                          if (r == 1) clock.sleep_until(clock.now() + std::chrono::seconds(30));
                          try {
                            expect_equal(layer, run_step(layer, world, rank), want, rank);
                            EXPECT_EQ(patience, 60) << "rank " << r;
                          } catch (const Error& error) {
                            EXPECT_EQ(patience, 20) << error.what();
                            if (r == 1) return;  // it comes when the others have left
                            ++failures;
                            EXPECT_EQ(error.code(), ErrorCode::kTimeout) << error.what();
                            EXPECT_THAT(error.ranks(), testing::ElementsAre(1)) << error.what();
                          }
                        });
    EXPECT_EQ(failures, patience == 20 ? 2 : 0);
  }
}

// Messages arrive in other orders and at other times: links of very different speeds, by seed.
TEST(Scenario, M29_MessagesInAnyOrder) {
  const World world = random_world({}, {12, 7, 9, 15}, 29);
  std::vector<Step> first(4);
  for (int seed = 0; seed < 6; ++seed) {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    std::vector<HostLink> links;
    std::vector<Host> hosts;
    for (int a = 0; a < 4; ++a) {
      hosts.push_back({.name = "h" + std::to_string(a), .ranks = {a}});
      for (int b = 0; b < a; ++b) {
        links.push_back({b, a, {.latency = std::chrono::microseconds(random() % 5000)}});
      }
    }
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    test::run_simulated({.topology = Topology(hosts, {}, links)},
                        [&](int r, std::unique_ptr<Transport> transport, Clock& clock) {
                          Communicator comm(std::move(transport), clock, {});
                          const auto rank = static_cast<std::size_t>(r);
                          ExpertLayer layer = layer_of(
                              comm, Placement::grid({.experts = 8, .ranks = 4, .replicas = 2}),
                              world, {.exchange = {.degree = 4, .piece_rows = 2}});
                          const Step step = run_step(layer, world, rank);
                          if (seed == 0) first[rank] = step;
                          EXPECT_TRUE(same_bits(first[rank], step)) << "rank " << r;
                        });
  }
}

// Options of every kind together: gated experts and shards, drops, pipelines, threads, exchanges.
// Each equals the same layer on one rank.
TEST(Scenario, M41_OptionsTogether) {
  World like;
  like.shape.form = ExpertForm::kGated;
  const World world = random_world(like, {9, 4, 11, 6}, 41);
  std::vector<Step> alone(4);  // each rank's tokens with all experts at hand
  Floats sums(world.parameters.size(), 0.0f);
  const CapacityRule rule{.factor = 1, .order = DropOrder::kPriority};
  run_ranks(1, [&](Communicator& comm) {
    for (std::size_t r = 0; r < 4; ++r) {
      ExpertLayer layer =
          layer_of(comm, Placement::grid({.experts = 8, .ranks = 1}), world, {.capacity = rule});
      alone[r] = run_step(layer, world, r);
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += alone[r].gradients[i];
    }
  });
  WorldResult want{{}, Numbers(sums.begin(), sums.end())};
  for (const Step& step : alone) {
    want.rank.push_back({Numbers(step.result.y.begin(), step.result.y.end()),
                         Numbers(step.result.dx.begin(), step.result.dx.end()),
                         Numbers(step.result.dweight.begin(), step.result.dweight.end())});
  }
  run_ranks(4, [&](Communicator& comm) {
    comm.use_topology(Topology::hosts({0, 1, 0, 1}, {}));
    int variant = 0;
    for (const int replicas : {1, 2}) {
      for (const int shards : {1, 2}) {
        for (const ExchangeKind kind : kKinds) {
          SCOPED_TRACE(testing::Message() << replicas << ' ' << shards << ' ' << name(kind));
          expect_right(
              comm,
              Placement::grid({.experts = 8, .ranks = 4, .replicas = replicas, .shards = shards}),
              world, want,
              {.capacity = rule,
               .exchange = {.kind = kind, .degree = 1 + variant % 3, .piece_rows = 3},
               .threads = 1 + variant % 2});
          ++variant;
        }
      }
    }
  });
}

// Rows cross to the other host once for each token and host, however many experts want them there.
TEST(ExpertLayer, PerHostCrossesOncePerTokenAndHost) {
  const World world = random_world({}, {30, 20, 25, 10}, 6, 4);
  const Placement placement = Placement::grid({.experts = 8, .ranks = 4});
  std::vector<std::int64_t> distinct(4, 0), all(4, 0);
  for (std::size_t r = 0; r < 4; ++r) {
    for (std::size_t t = 0; t < world.routing[r].tokens; ++t) {
      bool crosses = false;
      for (std::size_t j = 0; j < 4; ++j) {
        const std::int32_t e = world.routing[r].expert[t * 4 + j];
        if (e == kNoExpert || e / 4 == static_cast<int>(r / 2)) continue;
        crosses = true;
        ++all[r];
      }
      distinct[r] += crosses ? 1 : 0;
    }
  }
  run_ranks(4, [&](Communicator& comm) {
    comm.use_topology(Topology::hosts({0, 0, 1, 1}, {}));
    const auto rank = static_cast<std::size_t>(comm.rank());
    constexpr std::int64_t kRowBytes = 4 * sizeof(float);
    for (const ExchangeKind kind : {ExchangeKind::kFlat, ExchangeKind::kPerHost}) {
      ExpertLayer layer = layer_of(comm, placement, world, {.exchange = {.kind = kind}});
      Floats y(world.x[rank].size());
      layer.forward({.x = world.x[rank], .routing = world.routing[rank]}, y);
      // Results for the tokens of the other host come back one by one.
      std::int64_t back = 0;
      for (const std::size_t r : {0, 1, 2, 3}) {
        if (r / 2 == rank / 2) continue;
        for (const std::int32_t e : world.routing[r].expert) {
          back += e != kNoExpert && e / 2 == static_cast<int>(rank) ? 1 : 0;
        }
      }
      const std::int64_t there = kind == ExchangeKind::kFlat ? all[rank] : distinct[rank];
      EXPECT_EQ(layer.counters().host_row_bytes, (there + back) * kRowBytes) << name(kind);
    }
    EXPECT_LT(distinct[rank], all[rank]);
  });
}

TEST(ExpertLayer, RefusesWhatItCannotDo) {
  run_ranks(1, [](Communicator& comm) {
    const ExpertLayerOptions options{.shape = {.width = 4, .hidden = 8}};
    const auto make = [&](const Placement& placement, const ExpertLayerOptions& with) {
      return [&comm, placement, with] { ExpertLayer layer(comm, placement, with); };
    };
    const Placement one = Placement::grid({.experts = 2, .ranks = 1});
    expect_invalid(make(Placement::grid({.experts = 2, .ranks = 2}), options), {"2 ranks"});
    expect_invalid(make(one, {.shape = options.shape, .exchange = {.degree = 9}}), {"degree is 9"});
    expect_invalid(make(one, {.shape = options.shape, .threads = 0}), {"0 threads"});
    expect_invalid(make(one, {.shape = options.shape, .gradient_scale = 0}),
                   {"gradient_scale is 0"});
    ExpertLayer layer(comm, one, options);
    const Floats slot(layer.options().shape.slot_count());
    expect_invalid([&] { layer.load(2, slot); }, {"expert 2", "2 experts"});
    expect_invalid([&] { layer.load(-1, slot); }, {"expert -1"});
    expect_invalid([&] { layer.load(0, std::span(slot).first(3)); },
                   {"3 numbers", std::to_string(slot.size())});
  });
  run_ranks(2, [](Communicator& comm) {
    const Placement placement = Placement::grid({.experts = 2, .ranks = 2, .replicas = 2});
    expect_invalid([&] { ExpertLayer(comm, placement, {.shape = {.width = 4, .hidden = 8}}); },
                   {"first_group is 0"});
  });
}

// Before any call, so that the rank itself can go on.
TEST(ExpertLayer, RefusesABackwardOfOtherSizesThanItsForward) {
  const World world = random_world({}, {3}, 7);
  run_ranks(1, [&](Communicator& comm) {
    ExpertLayer layer = layer_of(comm, Placement::grid({.experts = 8, .ranks = 1}), world);
    Floats y(12), dx(12), dweight(6);
    const auto backward = [&](std::size_t dy_size, std::size_t dx_size, std::size_t dweight_size) {
      return [&, dy_size, dx_size, dweight_size] {
        layer.backward(std::span(world.dy[0]).first(dy_size),
                       {std::span(dx).first(dx_size), std::span(dweight).first(dweight_size)});
      };
    };
    expect_invalid(backward(12, 12, 6), {"without a forward"});
    layer.forward({.x = world.x[0], .routing = world.routing[0]}, y);
    expect_invalid(backward(8, 12, 6), {"dy has 8 numbers", "3 tokens of 4"});
    expect_invalid(backward(12, 11, 6), {"dx 11"});
    expect_invalid(backward(12, 12, 5), {"dweight 5", "2 choices"});
    EXPECT_NO_THROW(backward(12, 12, 6)());
    expect_invalid([&] { layer.forward({.x = world.x[0], .routing = world.routing[0]}, dweight); },
                   {"y 6"});
    expect_invalid(backward(12, 12, 6), {"without a forward"});
    expect_equal(layer, run_step(layer, world, 0), reference_of(world), 0);
  });
}

// Several replicas of an expert, and several shards of one, on one rank; replicas whose shards lie
// crosswise; an expert all of whose replicas are on one rank.
TEST(ExpertLayer, ReplicasAndShardsMayShareARank) {
  World like;
  like.experts = 2;
  const World world = random_world(like, {9, 4, 11}, 12);
  const WorldResult want = reference_of(world);
  const auto at = [](int expert, int replica, int rank, int slot) {
    return PhysicalExpert{.expert = expert, .rank = rank, .slot = slot, .replica = replica};
  };
  const Placement whole({.experts = 2,
                         .ranks = 3,
                         .physical = {at(0, 0, 0, 0), at(0, 1, 0, 1), at(0, 2, 2, 0),
                                      at(1, 0, 1, 0), at(1, 1, 1, 1), at(0, 3, 2, 2)}});
  std::vector<PhysicalExpert> crossed;
  for (const auto& [expert, replica, shard, rank, slot] :
       std::vector<std::array<int, 5>>{{0, 0, 0, 0, 0},
                                       {0, 0, 1, 1, 0},
                                       {0, 1, 0, 1, 1},
                                       {0, 1, 1, 0, 1},
                                       {1, 0, 0, 2, 0},
                                       {1, 0, 1, 2, 1},
                                       {1, 1, 0, 2, 2},
                                       {1, 1, 1, 0, 2}}) {
    crossed.push_back({.expert = expert,
                       .rank = rank,
                       .slot = slot,
                       .replica = replica,
                       .shard = shard,
                       .shards = 2});
  }
  const Placement cut({.experts = 2, .ranks = 3, .physical = crossed});
  run_ranks(3, [&](Communicator& comm) {
    comm.use_topology(Topology::hosts({0, 0, 1}, {}));
    for (const Placement& placement : {whole, cut}) {
      for (const ExchangeKind kind : kKinds) {
        SCOPED_TRACE(testing::Message() << placement.physical().size() << ' ' << name(kind));
        expect_right(comm, placement, world, want,
                     {.exchange = {.kind = kind, .degree = 2, .piece_rows = 3}});
      }
    }
  });
}

}  // namespace
}  // namespace motley::moe
