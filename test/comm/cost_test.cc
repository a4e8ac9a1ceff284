// The cost model says what the simulator takes, to the nanosecond, and what textbooks say where
// they have a formula.
#include "comm/algorithm/cost.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "comm/algorithm/families.h"
#include "comm/executor/engine.h"
#include "comm/transport/sim.h"

namespace motley {
namespace {

using std::chrono::microseconds;

// Reductions take no time in the simulator; here they take less than a nanosecond.
constexpr double kAtOnce = 1e18;

// The time that a call takes in the simulator, in one piece, with `count` int32 in a rank's larger
// buffer.
Duration simulated(CallKind kind, int algorithm, std::size_t count, const Topology& topology) {
  SimNetwork network({.topology = topology});
  const Group world = Group::world(topology.ranks());
  std::vector<std::unique_ptr<Engine>> engines;
  std::vector<Request> requests;
  std::vector<std::vector<std::int32_t>> in(world.ranks().size(),
                                            std::vector<std::int32_t>(count, 1));
  auto out = in;
  for (std::size_t r = 0; r < in.size(); ++r) {
    engines.push_back(
        std::make_unique<Engine>(network.transport(static_cast<int>(r)), network.clock()));
    Call call{.kind = kind, .group = &world, .in = in[r], .out = out[r]};
    call.algorithm = algorithm;
    call.segment_bytes = 1 << 20;
    call.deadline = TimePoint(seconds(1'000));
    requests.push_back(engines.back()->start(call));
  }
  while (network.step()) {
  }
  for (Request& request : requests) EXPECT_TRUE(request.test());
  return network.clock().now().time_since_epoch();
}

struct Case {
  CallKind kind;
  int algorithm;
};

class EveryFamily : public ::testing::TestWithParam<Case> {};

// Counts that are multiples of all sizes, so that chunks are equal; 0 too. 33, 48: not powers of
// two. Ranks share one host, or there are three to a host.
TEST_P(EveryFamily, CostsWhatTheSimulatorTakes) {
  const auto [kind, algorithm] = GetParam();
  const Algorithm& family = algorithms_of(kind)[static_cast<std::size_t>(algorithm)];
  for (const int size : {1, 2, 3, 4, 5, 7, 8, 12, 33, 48}) {
    for (const int ranks_per_host : {size, 3}) {
      std::vector<int> hosts;
      for (int rank = 0; rank < size; ++rank) hosts.push_back(rank / ranks_per_host);
      const Topology topology = Topology::hosts(hosts, {.within = {microseconds(2), 1e9},
                                                        .between = {microseconds(20), 1e8},
                                                        .reduce_bytes_per_second = kAtOnce});
      for (const int per_rank : {0, 1, 64}) {
        const auto count =
            static_cast<std::size_t>(kind == CallKind::kBarrier ? 0 : size * 32 * per_rank);
        EXPECT_EQ(cost(family, {.kind = kind, .bytes = count * 4}, topology).count(),
                  simulated(kind, algorithm, count, topology).count())
            << family.name << ", size " << size << ", " << ranks_per_host << " ranks a host, "
            << count << " elements";
      }
    }
  }
}

// Where ranks share two cores, too, each of which takes a while to turn to another rank.
TEST_P(EveryFamily, CostsWhatTheSimulatorTakesOfTurns) {
  const auto [kind, algorithm] = GetParam();
  const Algorithm& family = algorithms_of(kind)[static_cast<std::size_t>(algorithm)];
  for (const int size : {3, 4, 7, 8}) {
    std::vector<int> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    const Topology topology({{.ranks = ranks, .cores = 2}},
                            {.within = {microseconds(2), 1e9, microseconds(1)},
                             .reduce_bytes_per_second = kAtOnce,
                             .copy_bytes_per_second = kAtOnce,
                             .per_turn = microseconds(3)});
    for (const int per_rank : {0, 1, 64}) {
      const auto count =
          static_cast<std::size_t>(kind == CallKind::kBarrier ? 0 : size * 32 * per_rank);
      EXPECT_EQ(cost(family, {.kind = kind, .bytes = count * 4}, topology).count(),
                simulated(kind, algorithm, count, topology).count())
          << family.name << ", size " << size << ", " << count << " elements";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cost, EveryFamily,
    ::testing::Values(Case{CallKind::kAllReduce, 0}, Case{CallKind::kAllReduce, 1},
                      Case{CallKind::kAllReduce, 2}, Case{CallKind::kBroadcast, 0},
                      Case{CallKind::kAllToAll, 0}, Case{CallKind::kBarrier, 0}));

// alpha = 10 us, beta = 1 ns a byte, gamma = 0.5 ns a byte.
constexpr Link kLink{microseconds(10), 1e9};
Topology textbook(int ranks, const Link& link = kLink) {
  return Topology::hosts(std::vector<int>(static_cast<std::size_t>(ranks)),
                         {.within = link, .between = link, .reduce_bytes_per_second = 2e9});
}
constexpr double kAlpha = 10e-6, kBeta = 1e-9, kGamma = 0.5e-9;

Duration all_reduce_cost(const Algorithm& family, std::size_t bytes, const Topology& topology) {
  return cost(family, {.kind = CallKind::kAllReduce, .bytes = bytes}, topology);
}

// 200: too many steps to walk through all; ranks are alike, so one speaks for all.
TEST(Cost, OfTheRingIsTheTextbooks) {
  for (const int p : {2, 8, 64, 200}) {
    const double n = p * 10'000;
    const double expected = 2 * (p - 1) * (kAlpha + n / p * kBeta) + (p - 1) * n / p * kGamma;
    EXPECT_NEAR(to_seconds(all_reduce_cost(algorithms_of(CallKind::kAllReduce)[1],
                                           static_cast<std::size_t>(n), textbook(p))),
                expected, 1e-9 * p)
        << p;
  }
}

TEST(Cost, OfHalvingDoublingIsTheTextbooks) {
  for (const int p : {2, 8, 64, 1024}) {
    const double n = p * 1'000;
    double levels = 0;
    for (int q = 1; q < p; q *= 2) ++levels;
    const double expected =
        2 * levels * kAlpha + 2 * (p - 1) * n / p * kBeta + (p - 1) * n / p * kGamma;
    EXPECT_NEAR(to_seconds(all_reduce_cost(algorithms_of(CallKind::kAllReduce)[2],
                                           static_cast<std::size_t>(n), textbook(p))),
                expected, 1e-7)
        << p;
  }
}

// All four chunks have 1,000 bytes; rank 0 sends one, which is there after some us.
Duration cost_of(Schedule (*make)(const Shape&), const std::vector<int>& hosts) {
  const Link link{microseconds(10), 1e9};
  const TopologyCosts costs{.within = link,
                            .between = link,
                            .reduce_bytes_per_second = 5e5,
                            .copy_bytes_per_second = 1e6};
  return cost({"test", make}, {.kind = CallKind::kAllReduce, .bytes = 4'000},
              Topology::hosts(hosts, costs));
}
constexpr Step kArrives{Step::kRecv, 0, 0, 1};

// A copy keeps the message waiting, which is copied aside before the next copy; between hosts the
// network keeps it.
TEST(Cost, OfAMessageBeforeItsTurnIsACopyMore) {
  const auto late = [](const Shape& shape) {
    return shape.rank == 0
               ? Schedule::from_steps(4, {{Step::kSend, 1, 0, 1}})
               : Schedule::from_steps(
                     4, {{Step::kCopy, 0, 1, 1, 0}, kArrives, {Step::kCopy, 0, 0, 1, 2}});
  };
  const auto in_turn = [](const Shape& shape) {
    return shape.rank == 0
               ? Schedule::from_steps(4, {{Step::kSend, 1, 0, 1}})
               : Schedule::from_steps(
                     4, {kArrives, {Step::kCopy, 0, 0, 1, 2}, {Step::kCopy, 0, 2, 1, 3}});
  };
  EXPECT_NEAR(to_seconds(cost_of(late, {0, 0})), 3e-3, 3e-5);
  EXPECT_NEAR(to_seconds(cost_of(late, {0, 1})), 2e-3, 3e-5);
  EXPECT_NEAR(to_seconds(cost_of(in_turn, {0, 0})), 2e-3, 3e-5);
}

TEST(Cost, OfAReductionWithoutAMessageIsThatOfReadingToo) {
  const auto alone = [](const Shape& shape) {
    return shape.rank == 0 ? Schedule::from_steps(4, {{Step::kSend, 1, 0, 1}})
                           : Schedule::from_steps(4, {kArrives, {Step::kReduce, 0, 0, 1, 2}});
  };
  const auto with = [](const Shape& shape) {
    return shape.rank == 0 ? Schedule::from_steps(4, {{Step::kSend, 1, 0, 1}})
                           : Schedule::from_steps(4, {{Step::kRecvReduce, 0, 0, 1}});
  };
  EXPECT_NEAR(to_seconds(cost_of(alone, {0, 0})), 3e-3, 3e-5);
  EXPECT_NEAR(to_seconds(cost_of(with, {0, 0})), 2e-3, 3e-5);
}

TEST(Cost, OfOneRankIsNothing) {
  for (const Algorithm& family : algorithms_of(CallKind::kAllReduce)) {
    EXPECT_EQ(all_reduce_cost(family, 1 << 20, textbook(1)), Duration::zero());
  }
}

TEST(Cost, GrowsWithBytesAndLatency) {
  for (const Algorithm& family : algorithms_of(CallKind::kAllReduce)) {
    for (const int p : {2, 9, 300}) {
      EXPECT_LT(all_reduce_cost(family, 1'000, textbook(p)),
                all_reduce_cost(family, 1'000'000, textbook(p)))
          << family.name;
      EXPECT_LT(all_reduce_cost(family, 1'000, textbook(p)),
                all_reduce_cost(family, 1'000, textbook(p, {microseconds(30), 1e9})))
          << family.name;
    }
  }
}

// The longest exchanges of halving-doubling are with the nearest ranks, so within hosts.
TEST(Cost, OfHalvingDoublingIsLowerWhereNeighboursShareAHost) {
  const TopologyCosts costs{.between = {microseconds(20), 1e8}};
  const Algorithm& family = algorithms_of(CallKind::kAllReduce)[2];
  EXPECT_LT(all_reduce_cost(family, 1 << 20, Topology::hosts({0, 0, 0, 0, 1, 1, 1, 1}, costs)),
            all_reduce_cost(family, 1 << 20, Topology::hosts({0, 1, 0, 1, 0, 1, 0, 1}, costs)));
}

// A host with a quarter of the others' bandwidth has to send all it has: no algorithm is faster
// than that. The weighted one comes near; the ring sends 1.5 times as much there.
TEST(Cost, OfTheWeightedIsThatOfTheSlowestPort) {
  const auto find = [](const char* name) -> const Algorithm& {
    const int index = find_algorithm(CallKind::kAllReduce, name);
    return algorithms_of(CallKind::kAllReduce)[static_cast<std::size_t>(index)];
  };
  const Topology topology({{.ranks = {0}, .ports = 1, .port_bytes_per_second = 1.2e8},
                           {.ranks = {1}, .ports = 1, .port_bytes_per_second = 3e7},
                           {.ranks = {2}, .ports = 1, .port_bytes_per_second = 1.2e8},
                           {.ranks = {3}, .ports = 1, .port_bytes_per_second = 1.2e8}},
                          {.between = {microseconds(40), 1.2e8, microseconds(8)}});
  const Workload work{.kind = CallKind::kAllReduce, .bytes = 16 << 20, .segment_bytes = 128 << 10};
  const double least = (16 << 20) / 3e7;
  const double weighted = to_seconds(cost(find("weighted"), work, topology));
  EXPECT_GT(weighted, least);
  EXPECT_LT(weighted, 1.03 * least);
  EXPECT_GT(to_seconds(cost(find("ring"), work, topology)), 1.5 * least);
}

// Two thousand ranks are priced without storing a ring of them.
TEST(Cost, OfManyRanksIsFoundQuickly) {
  for (const Algorithm& family : algorithms_of(CallKind::kAllReduce)) {
    EXPECT_GT(all_reduce_cost(family, 1 << 20, textbook(2048)), microseconds(20)) << family.name;
  }
}

}  // namespace
}  // namespace motley
