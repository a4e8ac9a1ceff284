// The probe finds the links of a simulated network, and gives all ranks the same topology on real
// transports.
#include "comm/topology/probe.h"

#include <gtest/gtest.h>

#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "comm/price.h"
#include "test/support/rank_runner.h"
#include "test/support/simulation.h"

namespace motley {
namespace {

using std::chrono::microseconds;

// Hosts and ranks of `topology`, but none of its costs.
Topology without_costs(const Topology& topology) {
  std::vector<Host> hosts;
  for (const Host& host : topology.hosts())
    hosts.push_back({.name = host.name, .ranks = host.ranks, .socket = host.socket});
  return Topology(std::move(hosts), {});
}

Topology probe_simulated(const Topology& truth) {
  std::vector<std::string> found(static_cast<std::size_t>(truth.ranks()));
  test::run_simulated(
      {.topology = truth}, [&](int rank, std::unique_ptr<Transport> transport, Clock& clock) {
        Communicator comm(std::move(transport), clock, {});
        found[static_cast<std::size_t>(rank)] = probe(comm, without_costs(truth)).to_text();
      });
  for (const std::string& text : found) EXPECT_EQ(text, found[0]);
  return Topology::parse(found[0], "probed");
}

void expect_near(const Link& found, const Link& truth) {
  const auto ns = [](Duration d) { return static_cast<double>(d.count()); };
  EXPECT_NEAR(ns(found.latency), ns(truth.latency), 0.1 * ns(truth.latency) + 100);
  EXPECT_NEAR(ns(found.per_message), ns(truth.per_message), 0.1 * ns(truth.per_message) + 100);
  EXPECT_NEAR(found.bytes_per_second, truth.bytes_per_second, 0.1 * truth.bytes_per_second);
}

TEST(Probe, FindsTheLinksOfASimulatedNetwork) {
  const Link within{microseconds(2), 4e9, microseconds(1)};
  const Link across{microseconds(4), 2e9, microseconds(1)};
  const Link between{microseconds(30), 1e9, microseconds(3)};
  const Topology found =
      probe_simulated(Topology({{.ranks = {0, 1, 2}, .socket = {0, 0, 1}, .cores = 3, .ports = 1},
                                {.ranks = {3, 4}, .cores = 2, .ports = 1},
                                {.ranks = {5}, .ports = 1}},
                               {.within = within, .between = between, .across = across}));
  expect_near(found.costs().within, within);
  expect_near(found.costs().across, across);
  expect_near(found.costs().between, between);
  EXPECT_TRUE(found.links().empty()) << found.to_text();
  EXPECT_EQ(found.hosts()[2].ports, 1);
}

// Host 3's port has a quarter of the bandwidth; hosts 0 and 1 are far apart.
TEST(Probe, FindsTheSlowPortAndTheFarHost) {
  const Link far{microseconds(900), 2e8, microseconds(3)};
  const Topology found = probe_simulated(
      Topology({{.ranks = {0}, .ports = 1, .port_bytes_per_second = 1e9},
                {.ranks = {1}, .ports = 1, .port_bytes_per_second = 1e9},
                {.ranks = {2}, .ports = 1, .port_bytes_per_second = 1e9},
                {.ranks = {3}, .ports = 1, .port_bytes_per_second = 2.5e8}},
               {.between = {microseconds(30), 1e9, microseconds(3)}}, {{0, 1, far}}));
  EXPECT_NEAR(found.hosts()[0].port_bytes_per_second, 1e9, 1e8);
  EXPECT_NEAR(found.hosts()[3].port_bytes_per_second, 2.5e8, 2.5e7);
  ASSERT_EQ(found.links().size(), 1U) << found.to_text();
  EXPECT_EQ(found.links()[0].a, 0);
  EXPECT_EQ(found.links()[0].b, 1);
  expect_near(found.links()[0].link, far);
}

// Ranks on two cores: calls cost what they do, though one exchange would not tell. The simulator
// takes no time for reductions, so they are fast here.
TEST(Probe, PricesCallsWhereRanksShareCores) {
  for (const int ranks : {4, 6, 8}) {
    std::vector<int> all(static_cast<std::size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    const Topology truth({{.ranks = all, .cores = 2}},
                         {.within = {microseconds(1), 4e9, microseconds(1)},
                          .reduce_bytes_per_second = 2e10,
                          .copy_bytes_per_second = 4e9,
                          .per_turn = microseconds(5)});
    const Topology found = probe_simulated(truth);
    for (const char* family : {"direct", "ring", "halving_doubling", "tree"}) {
      for (const std::size_t bytes : {std::size_t{64}, std::size_t{256} << 10}) {
        const PricedCall call{.kind = CallKind::kAllReduce, .bytes = bytes, .algorithm = family};
        EXPECT_NEAR(to_seconds(price(call, found)) / to_seconds(price(call, truth)), 1, 0.25)
            << ranks << " ranks, " << family << ", " << bytes << " bytes\n"
            << found.to_text();
      }
    }
  }
}

TEST(Probe, MeasuresSomePairsOfManyHosts) {
  const Link between{microseconds(30), 1e9, microseconds(3)};
  const Topology found = probe_simulated(Topology::uniform(11, between));
  expect_near(found.costs().between, between);
  EXPECT_TRUE(found.links().empty()) << found.to_text();
}

class OnTransport : public ::testing::TestWithParam<std::string> {};

TEST_P(OnTransport, GivesAllRanksTheSame) {
  for (const int size : {1, 2, 3}) {
    std::mutex mutex;
    std::vector<std::string> found;
    test::run_ranks_on(GetParam(), size, [&](Communicator& comm) {
      const std::vector<int> one_host(static_cast<std::size_t>(size));
      const std::string text = probe(comm, Topology::hosts(one_host, {})).to_text();
      const std::lock_guard lock(mutex);
      found.push_back(text);
    });
    ASSERT_EQ(found.size(), static_cast<std::size_t>(size));
    for (const std::string& text : found) EXPECT_EQ(text, found[0]);
    EXPECT_EQ(Topology::parse(found[0], "probed").ranks(), size);
  }
}

INSTANTIATE_TEST_SUITE_P(Probe, OnTransport, ::testing::ValuesIn(test::transports()));

}  // namespace
}  // namespace motley
