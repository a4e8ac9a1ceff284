// Ranks on several hosts, played by network namespaces, find the network that joins them: whatever
// else the hosts have, and whatever they are called.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <sstream>

#include "comm/bootstrap/interface.h"
#include "test/comm/host_jobs.h"

namespace motley::test {
namespace {

// Scenario 16: beside the one network that joins the hosts, each has a bridge with the same address
// as the other's (as Docker makes), and a device that is down.
TEST_F(HostsTest, Scenario16TheRoutableInterfaceIsFound) {
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

// The calling process's host is called `name` from now on, and /etc/hosts is what is said. False if
// that is not allowed.
bool rename_host(const std::string& name, const std::string& hosts, const TemporaryFolder& folder) {
  const std::string path = folder / ("hosts." + name);
  std::ofstream(path) << hosts;
  return unshare(CLONE_NEWUTS | CLONE_NEWNS) == 0 &&
         mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         sethostname(name.data(), name.size()) == 0 &&
         mount(path.c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr) == 0;
}

// Scenario 15: one host's name leads to 127.0.1.1, as Debian writes it, the other's nowhere. With
// either as the one that all must reach, they meet and talk over the network that joins them.
TEST_F(HostsTest, Scenario15NamesOfHostsThatLeadNowhere) {
  const NetHosts hosts({{}, {}});
  for (const std::vector<int>& host_of : {std::vector{0, 1}, std::vector{1, 0}}) {
    const Job job(host_of);
    ForkedRanks ranks = start(hosts, job, [&](int rank, Store&) {
      const bool loops = host_of[static_cast<std::size_t>(rank)] == 0;
      if (!rename_host(loops ? "looping" : "nameless", loops ? "127.0.1.1 looping\n" : "\n",
                       job.folder)) {
        std::perror("rename the host");
        return false;
      }
      const std::string name = loops ? "looping" : "nameless";
      std::vector<std::string> found;
      try {
        for (const IpAddress& address : resolve(name)) found.push_back(address.to_text());
      } catch (const Error&) {
      }
      if (found != (loops ? std::vector<std::string>{"127.0.1.1"} : std::vector<std::string>{})) {
        return false;  // the test itself is not right
      }
      Options options = job.options(rank);
      std::string told;
      options.log = [&](LogLevel, const std::string& text) { told += text + "\n"; };
      Communicator comm = Communicator::join(options);
      return sums_up(comm) && contains(told, {"ucx over eth0"});
    });
    expect_success(ranks, job);
  }
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
TEST_F(HostsTest, Scenario17AddressFamilies) {
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
TEST_F(HostsTest, Scenario18PortsStayInTheRange) {
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

// Scenario 18: whatever would reach another port is thrown away, and all goes on as without that; a
// rank that would listen elsewhere is not reached.
TEST_F(HostsTest, Scenario18NothingGoesToOtherPorts) {
  const NetHosts hosts({{}, {}});
  try {
    hosts.run(0, {"nft", "list", "tables"});
  } catch (const Error& error) {
    GTEST_SKIP() << "this machine has no nftables: " << error.what();
  }
  for (int host = 0; host < hosts.size(); ++host) {
    hosts.run(host, {"nft", "add table inet motley"});
    hosts.run(host, {"nft", "add chain inet motley in { type filter hook input priority 0; }"});
    hosts.run(host, {"nft",
                     "add rule inet motley in tcp flags & (syn | ack) == syn tcp dport != "
                     "29600-29610 counter drop"});
    hosts.run(host, {"nft", "add rule inet motley in udp dport != 29600-29610 counter drop"});
  }
  const Job job({0, 0, 1, 1});
  for (const char* ports : {"29600-29610", "29620-29630"}) {
    const bool open = ports == std::string("29600-29610");
    ForkedRanks ranks = start(hosts, job, [&](int rank, Store&) {
      Options options = job.options(rank);
      options.ports = ports;
      if (open) {
        Communicator comm = Communicator::join(options);
        return sums_up(comm);
      }
      options.join_timeout = seconds(1);
      return !error_of([&] { Communicator::join(options); }, ErrorCode::kTimeout).empty();
    });
    expect_success(ranks, job);
  }
}

}  // namespace
}  // namespace motley::test
