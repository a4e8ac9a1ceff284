// The families that look at hosts give right results where ranks on several hosts run them, in
// virtual time: hosts of as many ranks each, unequal ones, ranks in turns, unequal ports.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "comm/algorithm/families.h"
#include "comm/communicator.h"
#include "test/support/simulation.h"

namespace motley {
namespace {

struct Layout {
  std::string name;
  Topology topology;
};

std::vector<Layout> layouts() {
  return {
      {"alike", Topology::hosts({0, 0, 0, 1, 1, 1}, {})},
      {"unequal", Topology::hosts({0, 0, 0, 1, 2, 2, 2, 2}, {})},
      {"in_turns", Topology::hosts({0, 1, 2, 0, 1, 2, 0}, {})},
      {"unequal_ports", Topology({{.ranks = {0, 1}, .ports = 1, .port_bytes_per_second = 1e9},
                                  {.ranks = {2, 3, 4}, .ports = 1, .port_bytes_per_second = 2e8},
                                  {.ranks = {5}, .ports = 1, .port_bytes_per_second = 7e8}},
                                 {})}};
}

class HostCollectives : public ::testing::TestWithParam<Layout> {
 protected:
  // `body` on all ranks, for every algorithm of the kind.
  template <class Body>
  void with_all(CallKind kind, const Body& body) {
    const Topology& topology = GetParam().topology;
    for (const Algorithm& family : algorithms_of(kind)) {
      Options options;
      options.segment_bytes = 512;  // several pieces
      test::run_simulated({.topology = topology},
                          [&](int, std::unique_ptr<Transport> transport, Clock& clock) {
                            Communicator comm(std::move(transport), clock, options);
                            comm.use_topology(topology);
                            body(comm, CallOptions{.algorithm = family.name});
                          });
    }
  }
};

// 0, 1: fewer elements than ranks. 4097: several pieces that no number of ranks divides.
TEST_P(HostCollectives, AllReduceIsExact) {
  with_all(CallKind::kAllReduce, [](Communicator& comm, const CallOptions& options) {
    for (const std::size_t count : {0, 1, 29, 4097}) {
      std::vector<std::int32_t> data;
      for (std::size_t i = 0; i < count; ++i)
        data.push_back(comm.rank() + static_cast<std::int32_t>(i));
      comm.all_reduce(data, ReduceOp::kSum, options).wait();
      const int ranks = comm.size();
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(data[i], ranks * (ranks - 1) / 2 + ranks * static_cast<std::int32_t>(i))
            << options.algorithm;
      }
    }
  });
}

TEST_P(HostCollectives, AllReduceGivesTheSameBitsToAll) {
  std::vector<std::vector<float>> results;
  with_all(CallKind::kAllReduce, [&](Communicator& comm, const CallOptions& options) {
    std::vector<float> data;
    for (int i = 0; i < 1000; ++i)
      data.push_back(1.0F / static_cast<float>(1 + i + 7 * comm.rank()));
    comm.all_reduce(data, ReduceOp::kSum, options).wait();
    results.push_back(data);
    if (results.size() < static_cast<std::size_t>(comm.size())) return;
    for (const std::vector<float>& result : results)
      EXPECT_EQ(result, results[0]) << options.algorithm;
    results.clear();
  });
}

TEST_P(HostCollectives, AllToAllMovesEveryBlock) {
  with_all(CallKind::kAllToAll, [](Communicator& comm, const CallOptions& options) {
    const int ranks = comm.size();
    const auto value = [](int from, int to, int i) { return (from * 64 + to) * 1024 + i; };
    for (const int count : {0, 1, 301}) {
      std::vector<std::int32_t> in;
      for (int to = 0; to < ranks; ++to) {
        for (int i = 0; i < count; ++i) in.push_back(value(comm.rank(), to, i));
      }
      std::vector<std::int32_t> out(in.size());
      comm.all_to_all(ConstView(in), View(out), options).wait();
      for (int from = 0; from < ranks; ++from) {
        for (int i = 0; i < count; ++i) {
          ASSERT_EQ(out[static_cast<std::size_t>(from * count + i)], value(from, comm.rank(), i))
              << options.algorithm;
        }
      }
      comm.all_to_all(ConstView(in), View(in), options).wait();
      ASSERT_EQ(in, out) << options.algorithm;
    }
  });
}

// Groups of any ranks take the part of the topology that is theirs.
TEST_P(HostCollectives, GroupsOfSomeRanksWork) {
  with_all(CallKind::kAllReduce, [](Communicator& comm, CallOptions options) {
    const Group group({5, 0, 4, 2}, {.id = 3});
    if (!group.contains(comm.rank())) return;
    options.group = &group;
    std::vector<std::int64_t> data(100, comm.rank());
    comm.all_reduce(data, ReduceOp::kSum, options).wait();
    EXPECT_EQ(data, std::vector<std::int64_t>(100, 11)) << options.algorithm;
  });
}

INSTANTIATE_TEST_SUITE_P(Hosts, HostCollectives, ::testing::ValuesIn(layouts()),
                         [](const ::testing::TestParamInfo<Layout>& tested) {
                           return tested.param.name;
                         });

}  // namespace
}  // namespace motley
