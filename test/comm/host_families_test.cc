// The families that look at hosts are right for every layout: hosts of as many ranks each, numbered
// one after another or in turns, and of unequal numbers in any order.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "comm/algorithm/check.h"
#include "comm/algorithm/families.h"
#include "comm/algorithm/hosts.h"
#include "comm/topology.h"
#include "test/support/every_family.h"

namespace motley {
namespace {

using test::Family;

std::vector<Family> families() {
  std::vector<Family> found = test::every_family();
  std::erase_if(found, [](const Family& family) { return family.algorithm->suits == nullptr; });
  return found;
}

class HostFamily : public ::testing::TestWithParam<Family> {
 protected:
  void prove(const Topology& topology) {
    const Family& family = GetParam();
    const int size = topology.ranks();
    ASSERT_EQ(check(family.kind, *family.algorithm, size, &topology).flaw, "")
        << topology.to_text();
    int most = 1;
    for (int rank = 0; rank < size; ++rank) {
      const Schedule schedule =
          family.algorithm->make({.rank = rank, .size = size, .topology = &topology});
      for (int i = 0; i < schedule.steps; ++i) {
        const Step step = schedule.at(i);
        if (!step.is_local()) most = std::max(most, step.chunk_count);
      }
      ASSERT_GE(schedule.max_step_chunks, most) << topology.to_text();
    }
  }
  void prove(const std::vector<int>& host_of) { prove(Topology::hosts(host_of, {})); }
};

TEST_P(HostFamily, IsRightForHostsOfAsManyRanksEach) {
  for (int hosts = 1; hosts <= 64; hosts += hosts < 9 ? 1 : 11) {
    for (int width = 1; hosts * width <= 64; width += width < 8 ? 1 : 7) {
      std::vector<int> host_of;
      for (int rank = 0; rank < hosts * width; ++rank) host_of.push_back(rank / width);
      prove(host_of);
    }
  }
}

TEST_P(HostFamily, IsRightForRanksDealtOutInTurns) {
  for (int hosts = 2; hosts <= 6; ++hosts) {
    for (int ranks = hosts; ranks <= 26; ++ranks) {
      std::vector<int> host_of;
      for (int rank = 0; rank < ranks; ++rank) host_of.push_back(rank % hosts);
      prove(host_of);
    }
  }
}

TEST_P(HostFamily, IsRightForUnequalHosts) {
  std::mt19937 random(11);
  const auto below = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
  for (int round = 0; round < 100; ++round) {
    const int hosts = 2 + below(5);
    std::vector<int> host_of;
    for (int rank = 2 + below(24); rank > 0; --rank) host_of.push_back(below(hosts));
    if (round % 2 == 0) std::sort(host_of.begin(), host_of.end());
    prove(host_of);
    if (HasFatalFailure()) return;
  }
}

// Ports a hundred times as fast as others, so that some hosts own no share.
TEST_P(HostFamily, IsRightForUnequalPorts) {
  std::mt19937 random(12);
  for (int round = 0; round < 30; ++round) {
    std::vector<Host> hosts;
    int rank = 0;
    for (int h = 0; h < 2 + round % 4; ++h) {
      Host& host = hosts.emplace_back(Host{.ports = 1 + round % 2});
      for (int i = 0; i < 1 + (h + round) % 3; ++i) host.ranks.push_back(rank++);
      host.port_bytes_per_second = 1e7 * static_cast<double>(1 + random() % 100);
    }
    prove(Topology(hosts, {}));
  }
}

INSTANTIATE_TEST_SUITE_P(Hosts, HostFamily, ::testing::ValuesIn(families()), test::name_of);

std::vector<std::uint32_t> weights(const Topology& topology) {
  return weighted_all_reduce({.size = topology.ranks(), .topology = &topology}).weights;
}

TEST(Weighted, GivesTheSlowHostNoShareAndTheOthersEqualOnes) {
  std::vector<Host> hosts(4);
  for (int h = 0; h < 4; ++h) {
    hosts[static_cast<std::size_t>(h)] = {
        .ranks = {h}, .ports = 1, .port_bytes_per_second = h == 2 ? 2.5e8 : 1e9};
  }
  const auto shares = weights(Topology(hosts, {}));
  ASSERT_EQ(shares.size(), 4U);
  EXPECT_EQ(shares[2], 0U);
  EXPECT_GT(shares[0], 0U);
  EXPECT_EQ(shares[0], shares[1]);
  EXPECT_EQ(shares[0], shares[3]);
}

// 1 + 2 w over the speed is the same for all: 1 + 2 * 0.3 = 1.6 and (1 + 2 * 0.1) / 0.75 = 1.6.
TEST(Weighted, LetsAllPortsEndAtOnce) {
  std::vector<Host> hosts;
  for (int h = 0; h < 4; ++h) {
    hosts.push_back({.ranks = {h}, .ports = 1, .port_bytes_per_second = h == 0 ? 7.5e8 : 1e9});
  }
  const auto shares = weights(Topology(hosts, {}));
  ASSERT_EQ(shares.size(), 4U);
  EXPECT_NEAR(static_cast<double>(shares[0]) / shares[1], 1.0 / 3, 0.02);
}

TEST(Weighted, LeavesEqualHostsEqualShares) {
  EXPECT_TRUE(weights(Topology::hosts({0, 0, 1, 1}, {})).empty());
}

// Every block goes to one rank of the other host, and then within it.
TEST(TwoLevel, SendsOneMessageToEveryHostAndEveryRankOfItsOwn) {
  for (const int hosts : {2, 3, 8}) {
    for (const int width : {2, 5}) {
      std::vector<int> host_of;
      for (int rank = 0; rank < hosts * width; ++rank) host_of.push_back(rank / width);
      const Topology topology = Topology::hosts(host_of, {});
      for (int rank = 0; rank < hosts * width; ++rank) {
        const Schedule schedule =
            two_level_all_to_all({.rank = rank, .size = hosts * width, .topology = &topology});
        int within = 0;
        int between = 0;
        for (int i = 0; i < schedule.steps; ++i) {
          const Step step = schedule.at(i);
          if (step.kind == Step::kSend) ++(topology.same_host(rank, step.peer) ? within : between);
        }
        EXPECT_EQ(within, width - 1);
        EXPECT_EQ(between, hosts - 1);
      }
    }
  }
}

}  // namespace
}  // namespace motley
