// The text form of a topology: what is written is read back equal, and errors name file and line.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <random>
#include <string>

#include "comm/topology.h"
#include "test/support/errors.h"
#include "test/support/temporary_folder.h"

namespace motley {
namespace {

using std::chrono::microseconds;

constexpr const char* kExample = R"(# two hosts, far apart
motley topology 1
reduce bytes_per_second=4e9
turn time_us=1.5
within latency_us=0.5 message_us=0.25 bytes_per_second=5e9
between latency_us=30 bytes_per_second=1e9     # message_us stays as it is

host node-a ranks=0-2,5 sockets=0,0,1,1 cores=4 ports=1 bytes_per_second=2.5e8
host node-b ranks=3,4
link node-b node-a latency_us=5000 message_us=3 bytes_per_second=1e7
)";

TEST(TopologyText, IsReadAsDocumented) {
  const Topology topology = Topology::parse(kExample, "example");
  EXPECT_EQ(topology.ranks(), 6);
  EXPECT_EQ(topology.costs().reduce_bytes_per_second, 4e9);
  EXPECT_EQ(topology.costs().copy_bytes_per_second, TopologyCosts{}.copy_bytes_per_second);
  EXPECT_EQ(topology.costs().per_turn, Duration(1500));
  EXPECT_EQ(topology.costs().within, (Link{Duration(500), 5e9, Duration(250)}));
  EXPECT_EQ(topology.costs().between, (Link{microseconds(30), 1e9, {}}));
  EXPECT_EQ(topology.host_of(5), 0);
  EXPECT_EQ(topology.socket_of(5), 1);
  EXPECT_EQ(topology.hosts()[0].port_bytes_per_second, 2.5e8);
  EXPECT_EQ(topology.link(0, 3), (Link{microseconds(5000), 1e7, microseconds(3)}));
  EXPECT_EQ(topology.link(4, 0), topology.link(0, 4));
  EXPECT_EQ(topology.link(0, 5), topology.costs().across);
}

TEST(TopologyText, WhatIsWrittenIsReadBackEqual) {
  std::mt19937 random(5);
  const auto below = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
  for (int round = 0; round < 200; ++round) {
    std::vector<Host> hosts(static_cast<std::size_t>(1 + below(4)));
    const int ranks = static_cast<int>(hosts.size()) + below(9);
    for (int rank = 0; rank < ranks; ++rank) {
      const std::size_t count = hosts.size();
      const auto at = static_cast<std::size_t>(rank);
      hosts[at < count ? at : at * 7 % count].ranks.push_back(rank);
    }
    for (Host& host : hosts) {
      host.cores = below(3);
      host.ports = below(3);
      if (below(2) != 0) host.port_bytes_per_second = 1e9 / (1 + below(1000));
      for (std::size_t i = 0; i < host.ranks.size() && host.cores != 0; ++i)
        host.socket.push_back(below(2));
    }
    std::vector<HostLink> links;
    if (hosts.size() > 1) links.push_back({1, 0, {Duration(below(100000)), 1e9 / 3, Duration(7)}});
    const Topology topology(hosts,
                            {.within = {Duration(below(9999)), 1e10 / 7, Duration(1)},
                             .per_turn = Duration(below(9999))},
                            links);
    const std::string text = topology.to_text();
    EXPECT_EQ(Topology::parse(text, "written"), topology) << text;
    EXPECT_EQ(Topology::parse(text, "written").to_text(), text);
  }
}

TEST(TopologyText, IsReadFromAFile) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "topology";
  std::ofstream(path) << kExample;
  EXPECT_EQ(Topology::read(path), Topology::parse(kExample, "example"));
  std::remove(path.c_str());
  test::expect_error(ErrorCode::kIo, {path}, [&] { return Topology::read(path); });
}

struct Wrong {
  const char* lines;  // after the heading
  const char* where;
  const char* fact;
};

class RefusedText : public ::testing::TestWithParam<Wrong> {};

TEST_P(RefusedText, NamesFileLineAndFault) {
  const std::string text = std::string("motley topology 1\n") + GetParam().lines;
  SCOPED_TRACE(text);
  test::expect_error(ErrorCode::kInvalid, {GetParam().where, GetParam().fact},
                     [&] { return Topology::parse(text, "a.topology"); });
}

INSTANTIATE_TEST_SUITE_P(
    TopologyText, RefusedText,
    ::testing::Values(
        Wrong{"", "a.topology: ", "no ranks"},
        Wrong{"\nhosst a ranks=0\n", "a.topology:3: ", "hosst"},
        Wrong{"host a", "a.topology:2: ", "ranks="}, Wrong{"host", "a.topology:2: ", "name"},
        Wrong{"host a ranks=0,x", "a.topology:2: ", "\"x\""},
        Wrong{"host a ranks=3-1", "a.topology:2: ", "3-1"},
        Wrong{"host a ranks=-1", "a.topology:2: ", "whole number"},
        Wrong{"host a ranks=0-1048575,0-9", "a.topology:2: ", "1048575"},
        Wrong{"host a ranks=0 rails=2", "a.topology:2: ", "\"rails\""},
        Wrong{"host a ranks=0 cores", "a.topology:2: ", "name=value"},
        Wrong{"host a ranks=0,2", "a.topology: ", "not rank 1"},
        Wrong{"host a ranks=0\nhost b ranks=0", "a.topology: ", "rank 0 is named twice"},
        Wrong{"host a ranks=0\nhost a ranks=1", "a.topology: ", "two hosts are called a"},
        Wrong{"host a ranks=0,1 sockets=0", "a.topology: ", "2 ranks, but 1 sockets"},
        Wrong{"host a ranks=0\nlink a b", "a.topology:3: ", "no host b"},
        Wrong{"host a ranks=0\nlink a a", "a.topology: ", "two different"},
        Wrong{"host a ranks=0\nhost b ranks=1\nlink a b\nlink b a", "a.topology: ", "two links"},
        Wrong{"within latency_us=-1", "a.topology:2: ", "-1"},
        Wrong{"between bytes_per_second=fast", "a.topology:2: ", "fast"},
        Wrong{"reduce bytes_per_second=0\nhost a ranks=0", "a.topology: ", "reduction"}));

TEST(TopologyText, MustBeginWithItsHeading) {
  for (const char* text : {"", "# nothing\n", "host a ranks=0\n", "motley topology 2\n"}) {
    SCOPED_TRACE(text);
    test::expect_error(ErrorCode::kInvalid, {"a.topology", "motley topology 1"},
                       [&] { return Topology::parse(text, "a.topology"); });
  }
}

}  // namespace
}  // namespace motley
