// Ranks on several hosts, played by network namespaces: they meet, talk by shared memory inside a
// host and by UCX between hosts, and notice that a host is cut off. Which network they take:
// host_networks_test.cc.
#include <gtest/gtest.h>

#include "comm/executor/engine.h"
#include "comm/partial_reduce.h"
#include "comm/transport/transport.h"
#include "test/comm/host_jobs.h"

namespace motley::test {
namespace {

// Unequal hosts: two ranks, one, three.
TEST_F(HostsTest, ShmInsideAndUcxBetween) {
  const NetHosts hosts({{}, {}, {}});
  const Job job({0, 1, 2, 0, 2, 2});
  ForkedRanks ranks = start(hosts, job, [&](int rank, Store&) {
    Communicator comm = Communicator::join(job.options(rank));
    const Transport& transport = comm.engine().transport();
    return sums_up(comm) && transport.hosts() == job.host_of &&
           transport.name() == std::string(rank == 1 ? "ucx" : "shm+ucx");
  });
  expect_success(ranks, job);
}

// Ports of 1 Gbit/s, one of a quarter.
TEST_F(HostsTest, SlowAndUnequalLinks) {
  const NetHosts hosts({{.bits_per_second = 1e9}, {.bits_per_second = 250e6}});
  const Job job({0, 0, 1, 1});
  ForkedRanks ranks = start(hosts, job, [&](int rank, Store&) {
    Communicator comm = Communicator::join(job.options(rank));
    return sums_up(comm);
  });
  expect_success(ranks, job);
}

// What is measured sets how the links are used; and messages that are fetched fare as others.
TEST_F(HostsTest, MeasuredLinksAndMessagesThatAreFetched) {
  const NetHosts hosts({{.bits_per_second = 1e9}, {.bits_per_second = 250e6}});
  for (const std::int64_t rendezvous : {-1, 0, 20'000}) {
    const Job job({0, 0, 1});
    ForkedRanks ranks = start(hosts, job, [&](int rank, Store&) {
      Options options = job.options(rank);
      options.topology = "probe";
      options.ucx_rendezvous = rendezvous;
      Communicator comm = Communicator::join(options);
      return sums_up(comm);
    });
    expect_success(ranks, job);
  }
}

// Reduces until something is wrong, and says by `store` when it is under way. True if that is the
// loss of one of `lost`, noticed within 10 s: a lease is 1.5 s,
// and machines that run tests may be busy.
bool loses(Communicator& comm, Store& store, const std::vector<int>& lost) {
  std::vector<float> data(1 << 20, 1);
  TimePoint last{};
  try {
    for (int round = 0;; ++round) {
      if (round == 3) store.set("running/" + std::to_string(comm.rank()), "yes");
      last = comm.clock().now();
      comm.all_reduce(data, ReduceOp::kMax).wait();
    }
  } catch (const Error& error) {
    const double late = to_seconds(comm.clock().now() - last);
    const bool named = !error.ranks().empty() &&
                       std::find(lost.begin(), lost.end(), error.ranks()[0]) != lost.end();
    if (error.code() == ErrorCode::kPeerLost && named && late < 10) return true;
    std::fprintf(stderr, "rank %d, after %.1f s: %s\n", comm.rank(), late, error.what());
    return false;
  }
}

void wait_until_running(ForkedRanks& ranks, const Job& job) {
  for (int rank = 0; rank < job.size(); ++rank) {
    ranks.store().get("running/" + std::to_string(rank), Clock::real().now() + seconds(30));
  }
}

// The cable of one host is pulled in the midst of all-reduces. Each side names the other's ranks,
// long before the timeout of the call.
TEST_F(HostsTest, ACutCableIsNoticedWithinTheLease) {
  const NetHosts hosts({{}, {}});
  const Job job({0, 0, 1, 1});
  ForkedRanks ranks = start(hosts, job, [&](int rank, Store& store) {
    Communicator comm = Communicator::join(job.options(rank));
    return loses(comm, store, rank < 2 ? std::vector{2, 3} : std::vector{0, 1});
  });
  wait_until_running(ranks, job);
  hosts.set_link(1, false);
  expect_success(ranks, job);
}

// From now on what `host` sends to `other` goes to nobody.
void cut_off(const NetHosts& hosts, int host, int other) {
  const std::string last = std::to_string(other + 1);
  for (const std::string& address : {"10.77.0." + last, "fd77::" + last}) {
    hosts.run(host, {"ip", "neigh", "replace", address, "lladdr", "02:00:00:00:00:99", "dev",
                     "eth0", "nud", "permanent"});
  }
}

// Two hosts are cut from each other, but not from that of the controller, which so says that both
// live. Each names the other, long before the timeout of its call.
TEST_F(HostsTest, HostsThatAreCutFromEachOtherAloneNameEachOther) {
  const NetHosts hosts({{}, {}, {}});
  const Job job({0, 1, 2});
  ForkedRanks ranks = start(hosts, job, [&](int rank, Store& store) {
    Communicator comm = Communicator::join(job.options(rank));
    if (rank == 0) {
      store.set("running/0", "yes");
      for (const char* key : {"done/1", "done/2"}) store.get(key, comm.clock().now() + seconds(50));
      return true;
    }
    const Group pair({1, 2}, {.id = 1});
    const std::string text = error_of(
        [&] {
          for (int round = 0;; ++round) {
            std::vector<float> data(1 << 16, 1);
            if (round == 3) store.set("running/" + std::to_string(rank), "yes");
            comm.all_reduce(data, ReduceOp::kMax, {.group = &pair}).wait();
          }
        },
        ErrorCode::kPeerLost);
    store.set("done/" + std::to_string(rank), "yes");
    return contains(text, {"lost rank " + std::to_string(3 - rank), "cannot be reached from here",
                           "though it lives"});
  });
  wait_until_running(ranks, job);
  cut_off(hosts, 1, 2);
  cut_off(hosts, 2, 1);
  expect_success(ranks, job);
}

// A rank is killed; in the second round the one that runs the controller.
TEST_F(HostsTest, AKilledRankIsNamedOnAllHosts) {
  const NetHosts hosts({{}, {}});
  for (const int victim : {3, 0}) {
    const Job job({0, 0, 1, 1});
    ForkedRanks ranks = start(hosts, job, [&](int rank, Store& store) {
      Communicator comm = Communicator::join(job.options(rank));
      return loses(comm, store, {victim});
    });
    wait_until_running(ranks, job);
    ranks.kill(victim);
    for (int rank = 0; rank < job.size(); ++rank) {
      if (rank == victim) continue;
      EXPECT_TRUE(ranks.succeeded(rank)) << "rank " << rank << ", killed: " << victim;
    }
  }
}

// Averages by partial-reduce until it has done so with `left` alone for a while. True if it was not
// held up for longer than until the lease of the others was over, nor for the 30 s that an average
// is given here.
bool averages_with(Communicator& comm, Store& store, const std::vector<int>& left) {
  PartialReducer reducer(
      comm, {.group_size = comm.size(), .timeout = seconds(60), .least_patience = seconds(60)});
  std::vector<float> model(1 << 18, 1);
  Duration longest{};
  int among_them = 0;
  for (int step = 0; among_them < 20; ++step) {
    if (step == 3) store.set("running/" + std::to_string(comm.rank()), "yes");
    const TimePoint start = comm.clock().now();
    if (reducer.average(model, step).group == left) ++among_them;
    longest = std::max(longest, comm.clock().now() - start);
  }
  if (longest < seconds(10)) return true;
  std::fprintf(stderr, "rank %d was held up for %.1f s\n", comm.rank(), to_seconds(longest));
  return false;
}

// A host is gone in the midst of averages by partial-reduce, its ranks killed or its cable pulled.
TEST_F(HostsTest, PartialScenario2And14PartialReduceGoesOnWithoutAHost) {
  const NetHosts hosts({{}, {}});
  for (const char* end : {"killed", "cut off"}) {
    const Job job({0, 0, 1, 1});
    ForkedRanks ranks = start(hosts, job, [&](int rank, Store& store) {
      Communicator comm = Communicator::join(job.options(rank));
      return averages_with(comm, store, {0, 1});
    });
    wait_until_running(ranks, job);
    if (end == std::string("killed")) {
      for (const int rank : {2, 3}) ranks.kill(rank);
    } else {
      hosts.set_link(1, false);
    }
    for (const int rank : {0, 1}) EXPECT_TRUE(ranks.succeeded(rank)) << rank << ", " << end;
  }
}

}  // namespace
}  // namespace motley::test
