// A topology knows hosts and links, and refuses what cannot be.
#include "comm/topology.h"

#include <gtest/gtest.h>

#include <limits>

#include "comm/error.h"

namespace motley {
namespace {

using std::chrono::microseconds;

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

TEST(Topology, RefusesWhatCannotBe) {
  const auto code_of = [](auto make) {
    try {
      make();
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kAborted;
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(code_of([] { Topology::uniform(0); }), ErrorCode::kInvalid);
  EXPECT_EQ(code_of([] { Topology::uniform(-1); }), ErrorCode::kInvalid);
  EXPECT_EQ(code_of([] { Topology::hosts({0, -1}, {}); }), ErrorCode::kInvalid);
  EXPECT_EQ(code_of([] { Topology::uniform(2, {microseconds(-1), 1e9}); }), ErrorCode::kInvalid);
  EXPECT_EQ(code_of([] { Topology::uniform(2, {microseconds(1), 0}); }), ErrorCode::kInvalid);
  EXPECT_EQ(code_of([] {
              Topology::uniform(2, {microseconds(1), kInfinity});
            }),
            ErrorCode::kInvalid);
  EXPECT_EQ(code_of([] { Topology::hosts({0}, {.reduce_bytes_per_second = -1}); }),
            ErrorCode::kInvalid);
}

}  // namespace
}  // namespace motley
