// The layer runs on programs: what it did is what a builder makes of all ranks' counts, so that a
// simulator of any rank's program tells of the layer's own; and it has the same bits whatever runs
// the lanes and, where each expert's rows are one piece, on any number of ranks.
#include <gmock/gmock.h>

#include "moe/builder.h"
#include "moe/simulator.h"
#include "test/moe/world_case.h"
#include "test/support/rank_runner.h"

namespace motley::moe {
namespace {

using test::run_ranks;

constexpr LaneThreads kAllLanes[] = {LaneThreads::kPosted, LaneThreads::kOneByOne,
                                     LaneThreads::kEach};

// What every rank sends to every physical expert, [ranks, physical].
std::vector<std::int64_t> counts_of(const World& world, const Placement& placement) {
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    const Plan plan = make_plan({.routing = world.routing[static_cast<std::size_t>(rank)],
                                 .placement = placement,
                                 .chooser = *local_first_chooser(),
                                 .rank = rank});
    counts.insert(counts.end(), plan.send_count.begin(), plan.send_count.end());
  }
  return counts;
}

// Made without a layer, for both directions, it is the program that the layer ran; and ranks have
// programs that are alike, so that a simulator takes them.
TEST(LayerProgram, IsWhatABuilderMakesOfTheCounts) {
  const World world = random_world({}, {40, 23, 0, 31}, 3);
  const Placement placement = Placement::grid({.experts = 8, .ranks = 4, .shards = 2});
  const std::vector<std::int64_t> counts = counts_of(world, placement);
  std::vector<Program> forward(4), backward(4);
  run_ranks(4, [&](Communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    ExpertLayer layer =
        layer_of(comm, placement, world,
                 {.exchange = {.kind = ExchangeKind::kFlat, .degree = 3, .piece_rows = 4}});
    const RankRows rows = rows_of({.placement = placement,
                                   .counts = counts,
                                   .rank = comm.rank(),
                                   .tokens = static_cast<std::int64_t>(world.routing[rank].tokens),
                                   .degree = 3,
                                   .piece_rows = 4});
    const TokenAllToAll builder({.lane = lane_of(comm.topology()), .algorithm = "direct"});
    const LayerShape half{.width = 4, .hidden = 4};
    Floats y(world.x[rank].size()), dx(y.size()), dweight(world.routing[rank].weight.size());
    layer.forward({.x = world.x[rank], .routing = world.routing[rank]}, y);
    forward[rank] = layer.program();
    EXPECT_EQ(forward[rank], builder.forward(half, rows)) << to_text(forward[rank]);
    EXPECT_EQ(layer.timeline().ops.size(), forward[rank].ops.size());
    layer.backward(world.dy[rank], {dx, dweight});
    backward[rank] = layer.program();
    EXPECT_EQ(backward[rank], builder.backward(half, rows)) << to_text(backward[rank]);
    EXPECT_EQ(layer.timeline().ops.size(), backward[rank].ops.size());
  });
  const CostModel costs(Topology::hosts({0, 0, 0, 0}, {}));
  EXPECT_GT(makespan(simulate(forward, costs)), Duration{});
  EXPECT_GT(makespan(simulate(backward, costs)), Duration{});
}

// Of kind per_host the first dispatch is told to send what crosses and what is handed on, which is
// what the counters say.
TEST(LayerProgram, TellsTheBytesThatCross) {
  const World world = random_world({}, {30, 20, 25, 10}, 6, 4);
  run_ranks(4, [&](Communicator& comm) {
    comm.use_topology(Topology::hosts({0, 0, 1, 1}, {}));
    const auto rank = static_cast<std::size_t>(comm.rank());
    for (const ExchangeKind kind : kKinds) {
      ExpertLayer layer = layer_of(comm, Placement::grid({.experts = 8, .ranks = 4}), world,
                                   {.exchange = {.kind = kind, .degree = 2, .piece_rows = 8}});
      Floats y(world.x[rank].size());
      layer.forward({.x = world.x[rank], .routing = world.routing[rank]}, y);
      std::int64_t told = 0;
      for (const Op& op : layer.program().ops)
        for (const std::int64_t bytes : op.sent) told += bytes;
      EXPECT_EQ(told, layer.counters().row_bytes) << name(kind);
    }
  });
}

TEST(LayerProgram, HasOneSetOfBitsWhateverRunsTheLanes) {
  const World world = random_world({}, {40, 23, 0, 31}, 4);
  const WorldResult want = reference_of(world);
  run_ranks(4, [&](Communicator& comm) {
    comm.use_topology(Topology::hosts({0, 0, 1, 1}, {}));
    const auto rank = static_cast<std::size_t>(comm.rank());
    std::vector<Step> steps;
    for (const LaneThreads lanes : kAllLanes) {
      for (const ExchangeKind kind : {ExchangeKind::kFlat, ExchangeKind::kPerHost}) {
        for (const int degree : {1, 3}) {
          ExpertLayer layer =
              layer_of(comm, Placement::grid({.experts = 8, .ranks = 4, .replicas = 2}), world,
                       {.exchange = {.kind = kind, .degree = degree, .piece_rows = 4},
                        .threads = 2,
                        .lanes = lanes});
          run_step(layer, world, rank);  // again on memory that has been used
          steps.push_back(run_step(layer, world, rank));
          if (steps.size() == 1) expect_equal(layer, steps[0], want, rank);
          EXPECT_TRUE(same_bits(steps[0], steps.back())) << name(kind) << ", degree " << degree;
        }
      }
    }
  });
}

// The same tokens on 1, 2, 4 and 8 ranks, however they are divided, and in any number of chunks: an
// expert's rows come in the order of all tokens.
TEST(LayerProgram, HasOneSetOfBitsOnAnyNumberOfRanks) {
  const World whole = random_world({}, {12}, 8);
  const auto run = [&](const std::vector<std::size_t>& tokens, int degree) {
    World world = whole;
    world.routing.clear();
    world.x.clear();
    world.dy.clear();
    auto x = whole.x[0].begin(), dy = whole.dy[0].begin();
    auto expert = whole.routing[0].expert.begin();
    auto weight = whole.routing[0].weight.begin();
    for (const std::size_t count : tokens) {
      const auto n = static_cast<std::ptrdiff_t>(count);
      Routing routing{.tokens = count, .top_k = 2};
      routing.expert.assign(expert, expert + 2 * n);
      routing.weight.assign(weight, weight + 2 * n);
      count_choices(routing, 8);
      world.routing.push_back(routing);
      world.x.emplace_back(x, x + 4 * n);
      world.dy.emplace_back(dy, dy + 4 * n);
      x += 4 * n, dy += 4 * n, expert += 2 * n, weight += 2 * n;
    }
    const int ranks = static_cast<int>(tokens.size());
    std::vector<Step> parts(tokens.size());
    run_ranks(ranks, [&](Communicator& comm) {
      const auto rank = static_cast<std::size_t>(comm.rank());
      ExpertLayer layer = layer_of(comm, Placement::grid({.experts = 8, .ranks = ranks}), world,
                                   {.exchange = {.degree = degree, .piece_rows = SIZE_MAX}});
      parts[rank] = run_step(layer, world, rank);
    });
    Step all;
    const auto append = [](Floats& to, const Floats& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    for (const Step& part : parts) {
      append(all.result.y, part.result.y);
      append(all.result.dx, part.result.dx);
      append(all.result.dweight, part.result.dweight);
      append(all.gradients, part.gradients);
    }
    return all;
  };
  const Step one = run({12}, 1);
  const std::vector<std::vector<std::size_t>> splits = {
      {12}, {7, 5}, {0, 12}, {3, 3, 3, 3}, {12, 0, 0, 0}, {1, 0, 4, 1, 2, 0, 3, 1}};
  for (const auto& tokens : splits) {
    for (const int degree : {1, 2, 5}) {
      EXPECT_TRUE(same_bits(one, run(tokens, degree)))
          << tokens.size() << " ranks, degree " << degree;
    }
  }
}

}  // namespace
}  // namespace motley::moe
