// Ranks on several hosts, played by network namespaces: they meet, talk by shared memory inside a
// host and by UCX between hosts, choose among networks, and notice that a host is cut off.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "comm/communicator.h"
#include "comm/error.h"
#include "comm/executor/engine.h"
#include "comm/transport/transport.h"
#include "test/support/forked_ranks.h"
#include "test/support/net_hosts.h"
#include "test/support/temporary_folder.h"

namespace motley::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// How the ranks of a test are spread, and where they meet.
struct Job {
  explicit Job(const std::vector<int>& host_of_) : host_of(host_of_) {}
  int size() const { return static_cast<int>(host_of.size()); }
  Options options(int rank) const {
    Options options;
    options.rank = rank;
    options.size = size();
    options.controller = "file:" + (folder / "job");
    options.host = "host" + std::to_string(host_of[static_cast<std::size_t>(rank)]);
    options.join_timeout = seconds(20);
    return options;
  }

  std::vector<int> host_of;
  TemporaryFolder folder;
};

// Runs each rank as a process on its host.
class HostsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = NetHosts::missing(); !why.empty()) GTEST_SKIP() << why;
  }

  using Body = std::function<bool(int rank, Store& store)>;
  static ForkedRanks start(const NetHosts& hosts, const Job& job, const Body& body) {
    return ForkedRanks(job.size(), [&](int rank, Store& store) {
      hosts.enter(job.host_of[static_cast<std::size_t>(rank)]);
      return body(rank, store);
    });
  }
  static void expect_success(ForkedRanks& ranks, const Job& job) {
    for (int rank = 0; rank < job.size(); ++rank) {
      EXPECT_TRUE(ranks.succeeded(rank)) << "rank " << rank;
    }
  }
};

bool sums_up(Communicator& comm) {
  for (const std::size_t n : {0, 1, 1000, 300'000}) {
    std::vector<int> data(n, comm.rank() + 1);
    comm.all_reduce(data, ReduceOp::kSum).wait();
    for (const int sum : data) {
      if (sum != comm.size() * (comm.size() + 1) / 2) return false;
    }
  }
  return true;
}

// The error of `body`; nothing was thrown, if empty.
std::string error_of(const std::function<void()>& body, ErrorCode code) {
  try {
    body();
    return "";
  } catch (const Error& error) {
    return error.code() == code ? error.what() : std::string("another code: ") + error.what();
  }
}

bool contains(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (text.find(part) != std::string::npos) continue;
    std::fprintf(stderr, "\"%s\" is not in \"%s\"\n", part.c_str(), text.c_str());
    return false;
  }
  return true;
}

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

// Scenario 16: beside the one network that joins the hosts, each has a bridge with the same address
// as the other's (as Docker makes), and a device that is down.
TEST_F(HostsTest, TheRoutableInterfaceIsFound) {
  const NetHosts hosts({{.v6 = false}, {.v6 = false}});
  for (int host = 0; host < hosts.size(); ++host) {
    hosts.run(host, {"ip", "link", "add", "docker0", "type", "veth", "peer", "name", "inner"});
    hosts.run(host, {"ip", "addr", "add", "172.17.0.1/16", "dev", "docker0"});
    hosts.run(host, {"ip", "link", "set", "docker0", "up"});
    hosts.run(host, {"ip", "link", "set", "inner", "up"});
    hosts.run(host, {"ip", "link", "add", "down0", "type", "bridge"});
    hosts.run(host, {"ip", "addr", "add", "10.99.0.1/24", "dev", "down0"});
  }
  const Job job({0, 1});
  ForkedRanks ranks = start(hosts, job, [&](int rank, Store&) {
    Options options = job.options(rank);
    std::string told;
    options.log = [&](LogLevel, const std::string& text) { told += text + "\n"; };
    Communicator comm = Communicator::join(options);
    return sums_up(comm) && contains(told, {"ucx over eth0"});
  });
  expect_success(ranks, job);
}

// The user's choice: by subnet of either family, or by a name that is not there.
TEST_F(HostsTest, TheUserChoosesTheNetwork) {
  const NetHosts hosts({{}, {}});
  for (const char* wanted : {"fd77::/64", "10.77.0.0/24"}) {
    const Job job({0, 1});
    ForkedRanks ranks = start(hosts, job, [&](int rank, Store&) {
      Options options = job.options(rank);
      options.interface = wanted;
      Communicator comm = Communicator::join(options);
      return sums_up(comm);
    });
    expect_success(ranks, job);
  }
  const Job job({0});
  ForkedRanks ranks = start(hosts, job, [&](int rank, Store&) {
    Options options = job.options(rank);
    options.size = 2;
    options.interface = "ib0";
    const std::string text =
        error_of([&] { Communicator::join(options); }, ErrorCode::kUnavailable);
    return contains(text, {"ib0", "eth0 10.77.0.1/24"});
  });
  expect_success(ranks, job);
}

// Scenario 17: two hosts that have IPv6 in common use that; with a third that has none there is no
// network for all, and the error says who has what.
TEST_F(HostsTest, AddressFamilies) {
  const NetHosts hosts({{}, {.v4 = false}, {.v6 = false}});
  const Job pair({0, 1});
  ForkedRanks good = start(hosts, pair, [&](int rank, Store&) {
    Communicator comm = Communicator::join(pair.options(rank));
    return sums_up(comm);
  });
  expect_success(good, pair);
  const Job three({0, 1, 2});
  ForkedRanks bad = start(hosts, three, [&](int rank, Store&) {
    const std::string text =
        error_of([&] { Communicator::join(three.options(rank)); }, ErrorCode::kUnavailable);
    return contains(text, {"rank 0 has IPv4 and IPv6 on eth0", "rank 1 has IPv6 on eth0",
                           "rank 2 has IPv4 on eth0"});
  });
  expect_success(bad, three);
}

// TCP ports at which somebody listens in this network namespace.
std::set<int> listening_ports() {
  std::set<int> ports;
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);  // heading
    while (std::getline(file, line)) {
      std::istringstream in(line);
      std::string number, local, remote, state;
      in >> number >> local >> remote >> state;
      constexpr const char* kListen = "0A";
      if (state == kListen) ports.insert(std::stoi(local.substr(local.find(':') + 1), nullptr, 16));
    }
  }
  return ports;
}

// Scenario 18: all listen at ports of the range. Two ranks and the controller need three.
TEST_F(HostsTest, PortsStayInTheRange) {
  const NetHosts hosts({{}, {}});
  const Job job({0, 0, 1});
  Options common;
  const auto options_of = [&](int rank) {
    Options options = job.options(rank);
    options.ports = common.ports;
    return options;
  };
  common.ports = "29600-29602";
  ForkedRanks good = start(hosts, job, [&](int rank, Store&) {
    Communicator comm = Communicator::join(options_of(rank));
    const std::set<int> ports = listening_ports();
    return sums_up(comm) && *ports.begin() >= 29600 && *ports.rbegin() <= 29602 &&
           ports.size() == (rank == 2 ? 1u : 3u);
  });
  expect_success(good, job);
  common.ports = "29600-29601";
  ForkedRanks bad = start(hosts, job, [&](int rank, Store& store) {
    const std::string text =
        error_of([&] { Communicator::join(options_of(rank)); }, ErrorCode::kIo);
    // One rank of host 0 finds no port and says so; the others do not wait for it.
    if (text.starts_with("network: all 2 ports in 29600-29601 are in use")) store.add("named", 1);
    return !text.empty();
  });
  expect_success(bad, job);
  EXPECT_EQ(bad.store().add("named", 0), 1);
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

}  // namespace
}  // namespace motley::test
