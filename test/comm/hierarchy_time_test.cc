// What the cost model says of hierarchical families is what the simulator takes, up to 256 hosts of
// 8 ranks; and where one of four hosts has a quarter of the bandwidth, what is chosen beats a ring.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "comm/algorithm/choose.h"
#include "comm/algorithm/cost.h"
#include "comm/algorithm/families.h"
#include "comm/executor/engine.h"
#include "comm/transport/sim.h"

namespace motley {
namespace {

using std::chrono::microseconds;

constexpr double kAtOnce = 1e18;  // the simulator's reductions and copies take no time

int index_of(CallKind kind, const std::string& name) {
  const std::vector<Algorithm>& families = algorithms_of(kind);
  for (std::size_t i = 0; i < families.size(); ++i) {
    if (families[i].name == name) return static_cast<int>(i);
  }
  ADD_FAILURE() << "no family " << name;
  return 0;
}

// Virtual seconds that a call of `bytes` a rank takes, and the messages that it sends.
struct Took {
  double time = 0;
  std::uint64_t messages = 0;
};

Took simulated(CallKind kind, int algorithm, std::size_t bytes, const Topology& topology) {
  SimNetwork network({.topology = topology});
  const Group world = Group::world(topology.ranks());
  std::vector<std::unique_ptr<Engine>> engines;
  std::vector<Request> requests;
  const bool exchange = kind == CallKind::kAllToAll;
  std::vector<std::vector<std::int8_t>> in;
  std::vector<std::vector<std::int8_t>> out;
  for (int r = 0; r < topology.ranks(); ++r) {
    in.emplace_back(bytes, static_cast<std::int8_t>(1));
    if (exchange) out.emplace_back(bytes);
  }
  for (int r = 0; r < topology.ranks(); ++r) {
    engines.push_back(std::make_unique<Engine>(network.transport(r), network.clock()));
    const auto at = static_cast<std::size_t>(r);
    Call call{.kind = kind,
              .group = &world,
              .in = ConstView(in[at]),
              .out = View(exchange ? out[at] : in[at])};
    call.algorithm = algorithm;
    call.topology = &topology;
    call.timeout = seconds(100'000);
    requests.push_back(engines.back()->start(call));
  }
  while (network.step()) {
  }
  for (Request& request : requests) EXPECT_TRUE(request.test());
  return {to_seconds(network.clock().now().time_since_epoch()), network.messages()};
}

double priced(CallKind kind, int algorithm, std::size_t bytes, const Topology& topology) {
  const Algorithm& family = algorithms_of(kind)[static_cast<std::size_t>(algorithm)];
  const Workload work{.kind = kind, .bytes = bytes, .segment_bytes = Choice{}.segment_bytes};
  return to_seconds(cost(family, work, topology));
}

Topology hosts_of(int hosts, int ranks, int ports) {
  std::vector<Host> list;
  for (int h = 0; h < hosts; ++h) {
    Host& host = list.emplace_back(Host{.ports = ports});
    for (int i = 0; i < ranks; ++i) host.ranks.push_back(h * ranks + i);
  }
  return Topology(list, {.within = {microseconds(1), 5e9, Duration(200)},
                         .between = {microseconds(20), 1.25e9, microseconds(1)},
                         .reduce_bytes_per_second = kAtOnce,
                         .copy_bytes_per_second = kAtOnce});
}

// Within 15 % of each other; returns what the simulator took.
Took expect_agreement(CallKind kind, const std::string& family, std::size_t bytes,
                      const Topology& topology) {
  const int algorithm = index_of(kind, family);
  const Took run = simulated(kind, algorithm, bytes, topology);
  const double price = priced(kind, algorithm, bytes, topology);
  std::printf("%-10s %-20s %5d ranks %9zu B: simulated %10.1f us, priced %10.1f us, %lu messages\n",
              name(kind), family.c_str(), topology.ranks(), bytes, run.time * 1e6, price * 1e6,
              static_cast<unsigned long>(run.messages));
  EXPECT_NEAR(price, run.time, 0.15 * run.time) << family;
  return run;
}

TEST(HierarchyTime, OfFewHostsIsPricedRight) {
  for (const int ports : {0, 1}) {
    const Topology topology = hosts_of(4, 4, ports);
    for (const std::size_t bytes : {std::size_t{64}, std::size_t{1} << 14, std::size_t{1} << 20}) {
      for (const CallKind kind : {CallKind::kAllReduce, CallKind::kAllToAll}) {
        for (const Algorithm& family : algorithms_of(kind))
          expect_agreement(kind, family.name, bytes, topology);
      }
    }
  }
}

TEST(HierarchyTime, OfTwoLevelsBeatsPairsForSmallMessages) {
  const Topology topology = hosts_of(8, 4, 1);
  const std::size_t bytes = 32 * 64;
  const Took flat = expect_agreement(CallKind::kAllToAll, "pairwise", bytes, topology);
  const Took levels = expect_agreement(CallKind::kAllToAll, "two_level", bytes, topology);
  EXPECT_LT(levels.time, flat.time);
  EXPECT_EQ(flat.messages, 32U * 31);
  EXPECT_EQ(levels.messages, 32U * (3 + 7));
}

// Two ranks on each of four hosts; each host has one port.
TEST(HierarchyTime, TheChosenBeatsTheRingWhereAHostHasAQuarterOfTheBandwidth) {
  std::vector<Host> hosts;
  for (int h = 0; h < 4; ++h) {
    hosts.push_back({.ranks = {2 * h, 2 * h + 1},
                     .ports = 1,
                     .port_bytes_per_second = h == 3 ? 3.125e8 : 1.25e9});
  }
  const Topology topology(hosts, {.within = {microseconds(1), 5e9, Duration(200)},
                                  .between = {microseconds(20), 1.25e9, microseconds(1)},
                                  .reduce_bytes_per_second = kAtOnce,
                                  .copy_bytes_per_second = kAtOnce});
  const std::size_t bytes = 16 << 20;
  const int chosen = choose({.kind = CallKind::kAllReduce, .bytes = bytes}, topology);
  const std::string family =
      algorithms_of(CallKind::kAllReduce)[static_cast<std::size_t>(chosen)].name;
  const Took best = expect_agreement(CallKind::kAllReduce, family, bytes, topology);
  const Took ring = expect_agreement(CallKind::kAllReduce, "ring", bytes, topology);
  std::printf("%s beats ring by %.2f\n", family.c_str(), ring.time / best.time);
  EXPECT_GE(ring.time, 1.5 * best.time);
}

// 256 hosts of 8.
TEST(LongHierarchyTime, Of2048RanksIsPricedRight) {
  const Topology topology = hosts_of(256, 8, 0);
  const Took flat = expect_agreement(CallKind::kAllToAll, "pairwise", 2048 * 8, topology);
  const Took levels = expect_agreement(CallKind::kAllToAll, "two_level", 2048 * 8, topology);
  EXPECT_LT(levels.time, flat.time);
  EXPECT_EQ(levels.messages, 2048U * (7 + 255));
  const Took ring = expect_agreement(CallKind::kAllReduce, "ring", 2048 * 16, topology);
  const Took hierarchy =
      expect_agreement(CallKind::kAllReduce, "hierarchical", 2048 * 16, topology);
  EXPECT_LT(hierarchy.time, ring.time);
}

}  // namespace
}  // namespace motley
