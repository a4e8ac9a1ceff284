// A job of several hosts: groups whose members are all on one of them run in each other's memory,
// as if the job were on that host alone; those across hosts run as schedules of messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "comm/communicator.h"
#include "comm/error.h"
#include "comm/executor/engine.h"
#include "comm/transport/composite.h"
#include "comm/transport/team.h"
#include "test/support/counting_transport.h"
#include "test/support/joined.h"
#include "test/support/memory_store.h"
#include "test/support/rank_runner.h"

namespace motley {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::StrEq;

// Ranks 0, 1 and 2 on one host, 3 and 4 on another.
void run_hosts(const test::RankBody& body) { test::run_ranks_on("hosts", 5, body); }

const char* last_algorithm(const Communicator& comm) {
  const auto call = comm.recorder().last_started();
  return call ? call->algorithm : "none";
}

TEST(HostsTeam, IsThatOfTheGroupsOnOneHost) {
  run_hosts([](Communicator& comm) {
    Transport& transport = comm.engine().transport();
    const bool first = comm.rank() < 3;
    ASSERT_NE(transport.team(), nullptr);
    EXPECT_EQ(transport.team_of(first ? Group({2, 0, 1}) : Group({4, 3})), transport.team());
    EXPECT_EQ(transport.team_of(comm.world()), nullptr);
    EXPECT_EQ(transport.team_of(first ? Group({2, 3}) : Group({4, 2})), nullptr);
  });
}

// While a call among all is under way, groups of every host make calls of every size.
TEST(HostsTeam, RunsGroupsOfOneHostBesideCallsOfAll) {
  run_hosts([](Communicator& comm) {
    const bool first = comm.rank() < 3;
    const Group mine = first ? Group({2, 0, 1}, {.id = 1}) : Group({4, 3}, {.id = 2});
    const int sum = first ? 0 + 1 + 2 : 3 + 4;
    for (int round = 0; round < 8; ++round) {
      std::vector<std::int64_t> all(1000, comm.rank());
      Request world = comm.all_reduce(all, ReduceOp::kSum);
      for (const std::size_t n : {0, 1, 1000, 100'000}) {
        std::vector<std::int32_t> data(n, comm.rank());
        comm.all_reduce(data, ReduceOp::kSum, {.group = &mine}).wait();
        ASSERT_THAT(data, Each(sum));
        EXPECT_THAT(last_algorithm(comm), StrEq("team"));
      }
      world.wait();
      ASSERT_THAT(all, Each(10));
    }
  });
}

// Whether what lies at `data` is mapped from a file that others can map, too.
bool is_shared(const std::byte* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream in(line);
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    in >> std::hex >> begin >> dash >> end;
    if (begin <= address && address < end) return line.find(" rw-s ") != line.npos;
  }
  return false;
}

// The same buffers in calls of a host, which reads them where they lie, and of all.
TEST(HostsTeam, BuffersAreSharedWithinTheHostAndGoodEverywhere) {
  run_hosts([](Communicator& comm) {
    const bool first = comm.rank() < 3;
    const Group mine = first ? Group({0, 1, 2}, {.id = 1}) : Group({3, 4}, {.id = 2});
    constexpr std::size_t kCount = 50'000;
    SharedBuffer buffer = comm.allocate(kCount * sizeof(float));
    EXPECT_TRUE(is_shared(buffer.data()));
    const auto values = buffer.as<float>();
    std::fill(values.begin(), values.end(), 1.f);
    comm.all_reduce(values, ReduceOp::kSum, {.group = &mine}).wait();
    EXPECT_THAT(values, Each(first ? 3.f : 2.f));
    comm.all_reduce(values, ReduceOp::kSum).wait();
    EXPECT_THAT(values, Each(3 * 3.f + 2 * 2.f));
  });
}

// Errors name ranks of the job, not of the host.
TEST(HostsTeam, NamesTheRanksThatDisagree) {
  run_hosts([](Communicator& comm) {
    if (comm.rank() < 3) return;
    const Group mine({4, 3}, {.id = 7});
    std::vector<float> data(comm.rank() == 3 ? 10 : 11);
    try {
      comm.all_reduce(data, ReduceOp::kSum, {.group = &mine}).wait();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kMismatch) << error.what();
      EXPECT_THAT(error.ranks(), testing::UnorderedElementsAre(3, 4));
      EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("count 10"), HasSubstr("11")));
    }
  });
}

// `hosts` hosts of `width` ranks each.
std::unique_ptr<Transport> counting(const TransportSetup& setup, int width) {
  TransportSetup hosts = setup;
  for (int rank = 0; rank < setup.size; ++rank) hosts.hosts.push_back(rank / width);
  return std::make_unique<test::CountingTransport>(make_composite_transport(hosts));
}

// How many ranks of its own host, and of others, a rank has sent to. Fails where one got several
// messages.
std::pair<int, int> near_and_far(const test::CountingTransport& transport, int width) {
  std::pair<int, int> count;
  for (const auto& [to, messages] : transport.sent()) {
    EXPECT_EQ(messages, 1) << "from " << transport.rank() << " to " << to;
    ++(to / width == transport.rank() / width ? count.first : count.second);
  }
  return count;
}

// Over real shared memory and UCX: with m ranks on each of n hosts a rank sends m-1 messages within
// its host and n-1 to others, for blocks that are alike as for those that vary.
void count_messages(int hosts, int width) {
  const int size = hosts * width;
  std::vector<int> host_of;
  for (int rank = 0; rank < size; ++rank) host_of.push_back(rank / width);
  test::MemoryStore store;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      Options options;
      options.progress_thread = false;  // so that one thread alone counts
      Communicator comm =
          test::joined([width](const auto& setup) { return counting(setup, width); }, rank, size,
                       store, options);
      comm.use_topology(Topology::hosts(host_of, {}));
      auto& transport = static_cast<test::CountingTransport&>(comm.engine().transport());
      std::vector<std::int32_t> data(static_cast<std::size_t>(2 * size), rank);
      const std::vector<std::size_t> twos(static_cast<std::size_t>(size), 2);
      const CallOptions two_level{.algorithm = "two_level"};
      comm.barrier().wait();
      transport.forget();
      comm.all_to_all(ConstView(View(data)), View(data), two_level).wait();
      EXPECT_EQ(near_and_far(transport, width), std::pair(width - 1, hosts - 1));
      EXPECT_EQ(data.back(), size - 1);
      transport.forget();
      comm.all_to_all_v({View(data), twos}, {View(data), twos}, two_level).wait();
      EXPECT_EQ(near_and_far(transport, width), std::pair(width - 1, hosts - 1));
      EXPECT_EQ(data.back(), rank);
      comm.barrier().wait();
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(HostsMessages, TwoLevelAllToAllSendsOneToEachOfTheHostAndOneToEachOtherHost) {
  count_messages(2, 3);
  count_messages(4, 2);
}

}  // namespace
}  // namespace motley
