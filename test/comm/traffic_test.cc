// Ports, cores and wires of a topology are busy for as long as its model says.
#include "comm/algorithm/traffic.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

using std::chrono::microseconds;

// A byte takes 1 us on every link, 4 us at host 1's port.
constexpr double kSpeed = 1e6;
const TopologyCosts kCosts = {.within = {microseconds(1), kSpeed},
                              .between = {microseconds(10), kSpeed, microseconds(2)},
                              .copy_bytes_per_second = 5 * kSpeed};

TEST(Traffic, MessagesOfARankLeaveOneAfterAnother) {
  const Topology topology = Topology::hosts({0, 0, 0}, kCosts);
  Traffic traffic(topology);
  EXPECT_EQ(traffic.send(0, 1, 5, microseconds(100)), microseconds(106));
  EXPECT_EQ(traffic.send(0, 2, 5, microseconds(100)), microseconds(111));
  EXPECT_EQ(traffic.send(1, 2, 5, microseconds(100)), microseconds(106));
  // The first to come is taken in at once, for it came at the port's speed; the next waits.
  EXPECT_EQ(traffic.take_in(1, 2, 5, microseconds(106)), microseconds(106));
  EXPECT_EQ(traffic.take_in(0, 2, 5, microseconds(108)), microseconds(111));
}

TEST(Traffic, EveryMessageTakesItsTimePerMessage) {
  const Topology topology = Topology::hosts({0, 1}, kCosts);
  Traffic traffic(topology);
  EXPECT_EQ(traffic.send(0, 1, 0, {}), microseconds(12));
  EXPECT_EQ(traffic.send(0, 1, 3, {}), microseconds(17));
}

TEST(Traffic, RanksOfAHostShareItsPorts) {
  const Topology topology({{.ranks = {0, 1}, .ports = 1},
                           {.ranks = {2, 3}, .ports = 1, .port_bytes_per_second = kSpeed / 4}},
                          kCosts);
  Traffic traffic(topology);
  EXPECT_EQ(traffic.send(0, 2, 8, {}), microseconds(20));
  EXPECT_EQ(traffic.send(1, 3, 8, {}), microseconds(30));
  EXPECT_EQ(traffic.send(0, 1, 8, {}), microseconds(9));  // within the host: its own port
  // The receiving port takes four times as long, out and in at once.
  EXPECT_EQ(traffic.take_in(0, 2, 8, microseconds(20)), microseconds(34));
  EXPECT_EQ(traffic.take_in(1, 3, 8, microseconds(30)), microseconds(68));
  EXPECT_EQ(traffic.send(2, 0, 8, {}), microseconds(44));
}

TEST(Traffic, HostsWithALinkOfTheirOwnShareIt) {
  const Topology topology({{.ranks = {0, 1}}, {.ranks = {2}}, {.ranks = {3}}}, kCosts,
                          {{0, 1, {microseconds(50), kSpeed / 10}}});
  Traffic traffic(topology);
  EXPECT_EQ(traffic.send(0, 2, 1, {}), microseconds(60));
  EXPECT_EQ(traffic.send(1, 2, 1, {}), microseconds(70));
  EXPECT_EQ(traffic.send(2, 0, 1, {}), microseconds(60));
  EXPECT_EQ(traffic.send(3, 0, 1, {}), microseconds(13));
}

TEST(Traffic, RanksOfAHostShareItsCores) {
  const Topology topology({{.ranks = {0, 1, 2}, .cores = 2}}, kCosts);
  Traffic traffic(topology);
  EXPECT_EQ(traffic.send(0, 1, 5, {}), microseconds(2));  // 1 us to copy
  EXPECT_EQ(traffic.send(2, 1, 5, {}), microseconds(2));  // on the other core
  EXPECT_EQ(traffic.send(1, 2, 5, {}), microseconds(3));
  EXPECT_EQ(traffic.turn(0, 1, {}), microseconds(2));
  EXPECT_EQ(traffic.turn(0, 1, microseconds(6)), microseconds(6));
  EXPECT_EQ(traffic.take_in(0, 1, 5, microseconds(6)), microseconds(11));
  EXPECT_EQ(traffic.work(1, microseconds(4), microseconds(6)), microseconds(15));  // after that
  EXPECT_EQ(traffic.work(0, microseconds(4), {}), microseconds(5));  // meanwhile, on the other
}

// A core goes on at once with the rank that it works for, and turns to another in 3 us.
TEST(Traffic, TurnsFromRankToRankTakeTime) {
  TopologyCosts costs = kCosts;
  costs.per_turn = microseconds(3);
  const Topology topology({{.ranks = {0, 1}, .cores = 1}}, costs);
  Traffic traffic(topology);
  EXPECT_EQ(traffic.work(0, microseconds(4), {}), microseconds(4));
  EXPECT_EQ(traffic.work(0, microseconds(4), {}), microseconds(8));
  EXPECT_EQ(traffic.turn(1, 0, {}), microseconds(8));
  EXPECT_EQ(traffic.turn(0, 1, {}), microseconds(11));
  EXPECT_EQ(traffic.work(1, microseconds(4), {}), microseconds(15));
  EXPECT_EQ(traffic.work(0, microseconds(4), microseconds(20)), microseconds(24));  // it has rested
  const Topology two({{.ranks = {0, 1}, .cores = 2}}, costs);
  Traffic apart(two);
  EXPECT_EQ(apart.work(0, microseconds(4), {}), microseconds(4));
  EXPECT_EQ(apart.work(1, microseconds(4), {}), microseconds(4));
}

TEST(Traffic, RanksWithCoresOfTheirOwnWorkWhileTheySend) {
  const Topology topology = Topology::hosts({0, 0}, kCosts);
  Traffic traffic(topology);
  traffic.send(0, 1, 100, {});
  EXPECT_EQ(traffic.work(0, microseconds(4), {}), microseconds(4));
  EXPECT_EQ(traffic.work(0, microseconds(4), {}), microseconds(8));
}

}  // namespace
}  // namespace motley
