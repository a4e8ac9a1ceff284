// A topology knows hosts and links, and refuses what cannot be.
#include "comm/topology.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "test/support/errors.h"

namespace motley {
namespace {

using std::chrono::microseconds;
using test::expect_invalid;

TEST(Topology, TellsLinksWithinAHostFromThoseBetweenHosts) {
  const Topology topology = Topology::hosts(
      {0, 1, 0}, {.within = {microseconds(1), 5e9}, .between = {microseconds(9), 1e9}});
  EXPECT_EQ(topology.ranks(), 3);
  EXPECT_EQ(topology.link(0, 2).latency, microseconds(1));
  EXPECT_EQ(topology.link(2, 1).latency, microseconds(9));
  const Topology some = topology.subset({2, 1});
  EXPECT_EQ(some.ranks(), 2);
  EXPECT_FALSE(some.same_host(0, 1));
}

TEST(Topology, UniformLinksAreAlike) {
  const Topology topology = Topology::uniform(3, {microseconds(4), 1e6});
  EXPECT_EQ(topology.link(0, 1).latency, microseconds(4));
  EXPECT_EQ(topology.link(2, 0).bytes_per_second, 1e6);
}

// Host 0 has one network port for its two ranks and one core, host 1 a port for each rank.
TEST(Topology, SaysWhichPortsAMessageOccupies) {
  const Topology topology(
      {{.ranks = {0, 1}, .cores = 1, .ports = 1, .port_bytes_per_second = 5e8}, {.ranks = {2, 3}}},
      {}, {{1, 0, {microseconds(50), 1e8}}});
  const Topology::Route near = topology.route(0, 1);
  EXPECT_EQ(near.out, near.in);  // one core
  EXPECT_EQ(near.out, topology.core_of(0));
  EXPECT_EQ(near.wire, -1);
  const Topology::Route far = topology.route(0, 2);
  EXPECT_EQ(far.out, topology.route(1, 3).out);  // the shared port
  EXPECT_NE(far.in, topology.route(1, 3).in);
  EXPECT_NE(far.out, topology.route(2, 0).in);  // out and in at once
  EXPECT_EQ(far.wire, topology.route(1, 3).wire);
  EXPECT_NE(far.wire, topology.route(2, 0).wire);
  EXPECT_EQ(far.out_bytes_per_second, 5e8);
  EXPECT_EQ(far.in_bytes_per_second, 1e8);  // no faster than the link
  EXPECT_EQ(topology.core_of(2), -1);
  for (int from = 0; from < 4; ++from) {
    for (int to = 0; to < 4; ++to) {
      const Topology::Route route = topology.route(from, to);
      EXPECT_LT(std::max({route.out, route.in, route.wire}), topology.busy_things());
    }
  }
}

TEST(Topology, OfSomeRanksKeepsTheirHostsAndLinks) {
  const Link slow{microseconds(50), 1e8};
  const Topology topology({{.name = "a", .ranks = {0, 1}},
                           {.name = "b", .ranks = {2, 3}, .socket = {0, 1}, .ports = 1},
                           {.name = "c", .ranks = {4}}},
                          {}, {{0, 1, slow}, {2, 1, slow}});
  const Topology some = topology.subset({4, 3, 2});
  EXPECT_EQ(some, Topology({{.name = "c", .ranks = {0}},
                            {.name = "b", .ranks = {1, 2}, .socket = {1, 0}, .ports = 1}},
                           {}, {{0, 1, slow}}));
  EXPECT_EQ(topology.subset({0, 1, 2, 3, 4}), topology);
}

TEST(Topology, RefusesWhatCannotBe) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  expect_invalid([] { Topology::uniform(0); });
  expect_invalid([] { Topology::uniform(-1); });
  expect_invalid([] { Topology::hosts({0, -1}, {}); });
  expect_invalid([] { Topology::uniform(2, {microseconds(-1), 1e9}); });
  expect_invalid([] { Topology::uniform(2, {microseconds(1), 0}); });
  expect_invalid([] { Topology::uniform(2, {microseconds(1), kInfinity}); });
  expect_invalid([] { Topology::hosts({0}, {.reduce_bytes_per_second = -1}); });
}

}  // namespace
}  // namespace motley
