// The families that look at hosts give right results where ranks on several hosts run them, in
// virtual time: hosts of as many ranks each, unequal ones, ranks in turns, unequal ports.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "comm/algorithm/families.h"
#include "comm/communicator.h"
#include "comm/error.h"
#include "test/support/errors.h"
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

// How many elements a rank has for another: none, less and more than a head, several pieces.
std::size_t count_for(int from, int to) {
  constexpr std::size_t kCounts[] = {0, 1, 63, 64, 65, 7, 0, 400};
  return kCounts[static_cast<std::size_t>(3 * from + 5 * to) % std::size(kCounts)];
}

// The blocks that `rank` has for others, or gets from them.
std::vector<std::int32_t> blocks(int rank, int ranks, bool gets, std::vector<std::size_t>& counts) {
  std::vector<std::int32_t> all;
  for (int other = 0; other < ranks; ++other) {
    const int from = gets ? other : rank, to = gets ? rank : other;
    counts.push_back(count_for(from, to));
    for (std::size_t i = 0; i < counts.back(); ++i)
      all.push_back((from * 64 + to) * 1024 + static_cast<std::int32_t>(i));
  }
  return all;
}

TEST_P(HostCollectives, AllToAllVMovesEveryBlock) {
  with_all(CallKind::kAllToAllV, [](Communicator& comm, const CallOptions& options) {
    std::vector<std::size_t> given, due;
    const std::vector<std::int32_t> in = blocks(comm.rank(), comm.size(), false, given);
    const std::vector<std::int32_t> wanted = blocks(comm.rank(), comm.size(), true, due);
    std::vector<std::int32_t> out(wanted.size(), -1);
    comm.all_to_all_v({ConstView(in), given}, {View(out), due}, options).wait();
    EXPECT_EQ(out, wanted) << options.algorithm << ", rank " << comm.rank();
    std::vector<std::int8_t> bytes(static_cast<std::size_t>(comm.size()),
                                   static_cast<std::int8_t>(comm.rank()));
    const std::vector<std::size_t> ones(bytes.size(), 1);
    comm.all_to_all_v({View(bytes), ones}, {View(bytes), ones}, options).wait();
    for (int from = 0; from < comm.size(); ++from)
      EXPECT_EQ(bytes[static_cast<std::size_t>(from)], from) << options.algorithm;
  });
}

// Those who pass blocks on do not know how long they are; the two ends do.
TEST_P(HostCollectives, AllToAllVOfOtherCountsIsADisagreement) {
  with_all(CallKind::kAllToAllV, [](Communicator& comm, const CallOptions& options) {
    const int last = comm.size() - 1;
    std::vector<std::size_t> counts(static_cast<std::size_t>(comm.size()), 1);
    std::vector<std::size_t> due = counts;
    if (comm.rank() == last) due[0] = 100;  // rank 0 has 1 for it
    const auto sum = [](const std::vector<std::size_t>& of) {
      return std::accumulate(of.begin(), of.end(), std::size_t{0});
    };
    std::vector<std::int32_t> in(sum(counts)), out(sum(due));
    const auto call = [&] {
      comm.all_to_all_v({ConstView(in), counts}, {View(out), due}, options).wait();
    };
    if (comm.rank() == last)
      return test::expect_error(ErrorCode::kMismatch, {"rank 0", "count 1 ", "count 100"}, call);
    try {
      call();  // whoever is done before hears of it in his next call
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kMismatch) << error.what();
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
