// Collectives between hosts that are network namespaces of this machine, joined by rate-limited
// links; or any program there. Needs root and iproute2.
//
//   hosts_perf                                    tables of all algorithms, one host slow
//   hosts_perf --hosts 4 --ranks 2 --gbit 1 --slow 3:0.25
//   hosts_perf --hosts 2 -- motley-perf -b 1M -e 16M      the program as each rank
//
// Each figure is the median over samples of the slowest rank's time of one call. Below all_reduce
// stands what the rates of the ports alone allow: a ring that is bound by the slowest port cannot
// be beaten by more than that, whatever the algorithm (short buffers can, as a rate limit lets some
// bytes through at once).
#include <fmt/format.h>
#include <gflags/gflags.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <vector>

#include "comm/algorithm/families.h"
#include "comm/communicator.h"
#include "comm/error.h"
#include "test/support/forked_ranks.h"
#include "test/support/net_hosts.h"
#include "test/support/temporary_folder.h"

DEFINE_int32(hosts, 4, "number of hosts");
DEFINE_int32(ranks, 1, "ranks on each host");
DEFINE_double(gbit, 1, "Gbit/s of each host's port, in each direction; 0: no limit");
DEFINE_string(slow, "1:0.25", "host:share, a host whose port has that share of the rate; or empty");
DEFINE_double(cap, 1, "seconds for one figure");

namespace motley::test {
namespace {

struct Layout {
  std::vector<NetHost> hosts;
  int ranks_per_host = 1;
  int size() const { return static_cast<int>(hosts.size()) * ranks_per_host; }
};

Layout layout() {
  Layout layout{.hosts = std::vector<NetHost>(static_cast<std::size_t>(FLAGS_hosts)),
                .ranks_per_host = FLAGS_ranks};
  for (NetHost& host : layout.hosts) host.bits_per_second = FLAGS_gbit * 1e9;
  if (FLAGS_slow.empty()) return layout;
  const std::size_t colon = FLAGS_slow.find(':');
  const auto host = static_cast<std::size_t>(std::atoi(FLAGS_slow.c_str()));
  if (colon == std::string::npos || host >= layout.hosts.size()) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("--slow is \"{}\". Use host:share with a host in [0, {}).", FLAGS_slow,
                            FLAGS_hosts));
  }
  layout.hosts[host].bits_per_second *= std::atof(FLAGS_slow.c_str() + colon + 1);
  return layout;
}

// What a rank finds in its environment.
std::map<std::string, std::string> place_of(int rank, const Layout& layout,
                                            const std::string& meeting) {
  return {{"MOTLEY_RANK", std::to_string(rank)},
          {"MOTLEY_SIZE", std::to_string(layout.size())},
          {"MOTLEY_CONTROLLER", "file:" + meeting},
          {"MOTLEY_HOST", fmt::format("host{}", rank / layout.ranks_per_host)}};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Seconds of one call, the same on all ranks; negative if the algorithm is not for this layout.
double time_of(Communicator& comm, const std::function<Request()>& call) {
  const TimePoint end = comm.clock().now() + seconds(FLAGS_cap);
  std::vector<double> times;
  for (double more = 1; more > 0;) {
    comm.barrier().wait();
    const TimePoint start = comm.clock().now();
    try {
      call().wait();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInvalid && error.code() != ErrorCode::kUnavailable) throw;
      return -1;
    }
    const TimePoint stop = comm.clock().now();
    // The slowest rank's time; and whether all have time for another sample.
    std::vector<double> shared = {to_seconds(stop - start), stop < end ? 0.0 : 1.0};
    comm.all_reduce(shared, ReduceOp::kMax).wait();
    times.push_back(shared[0]);
    more = 1 - shared[1];
  }
  return median(times.size() > 1 ? std::vector(times.begin() + 1, times.end()) : times);
}

// Seconds of an all_reduce by the rates of ports alone, whatever latencies and headers add.
struct PortTimes {
  double ring = 0;   // each host sends 2(p-1)/p of the buffer to the next
  double least = 0;  // of any algorithm
};

// Every host's data has to leave it, so the slowest sends the buffer once or more; and all hosts
// together send it 2(H-1) times: H-1 until one of them knows a sum, H-1 until the others do.
PortTimes port_times(const Layout& layout, std::size_t bytes) {
  double slowest = layout.hosts.front().bits_per_second;
  double all = 0;
  for (const NetHost& host : layout.hosts) {
    slowest = std::min(slowest, host.bits_per_second);
    all += host.bits_per_second;
  }
  const double bits = 8 * static_cast<double>(bytes);
  const double ranks = layout.size();
  const auto hosts = static_cast<double>(layout.hosts.size());
  return {.ring = 2 * (ranks - 1) / ranks * bits / slowest,
          .least = std::max(bits / slowest, 2 * (hosts - 1) * bits / all)};
}

void print_bound(const Layout& layout, std::size_t bytes, double ring, double chosen) {
  if (layout.hosts.size() < 2 || FLAGS_gbit <= 0) return;
  const PortTimes ports = port_times(layout, bytes);
  fmt::print(
      "all_reduce of {} bytes, auto beats ring {:.2f} times; by ports alone a ring takes {:.1f} "
      "ms, anything {:.1f} ms or more: {:.2f} times at most\n",
      bytes, ring / chosen, ports.ring * 1e3, ports.least * 1e3, ports.ring / ports.least);
}

void print_row(const char* call, std::size_t bytes, const std::string& algorithm, double time) {
  if (time < 0) return;
  fmt::print("{:<12} {:>10} {:<20} {:>12.3f} {:>10.2f}\n", call, bytes, algorithm, time * 1e3,
             static_cast<double>(bytes) / time / 1e6);
  std::fflush(stdout);
}

std::vector<std::string> algorithms(CallKind kind) {
  std::vector<std::string> names = {"auto"};
  for (const Algorithm& it : algorithms_of(kind)) names.emplace_back(it.name);
  return names;
}

void measure_all_reduce(Communicator& comm, const Layout& layout) {
  const bool tells = comm.rank() == 0;
  for (const std::size_t bytes : {std::size_t{64} << 10, std::size_t{16} << 20}) {
    std::vector<float> data(bytes / sizeof(float), 1);
    std::map<std::string, double> times;
    for (const std::string& algorithm : algorithms(CallKind::kAllReduce)) {
      times[algorithm] = time_of(
          comm, [&] { return comm.all_reduce(data, ReduceOp::kMax, {.algorithm = algorithm}); });
      if (tells) print_row("all_reduce", bytes, algorithm, times[algorithm]);
    }
    if (tells) print_bound(layout, bytes, times.at("ring"), times.at("auto"));
  }
}

void measure_all_to_all(Communicator& comm) {
  const bool tells = comm.rank() == 0;
  for (const std::size_t block : {std::size_t{64}, std::size_t{4} << 10, std::size_t{256} << 10}) {
    const std::size_t n = block / sizeof(float) * static_cast<std::size_t>(comm.size());
    const std::vector<float> in(n, 1);
    std::vector<float> out(n);
    for (const std::string& algorithm : algorithms(CallKind::kAllToAll)) {
      const double time =
          time_of(comm, [&] { return comm.all_to_all(in, out, {.algorithm = algorithm}); });
      if (tells) print_row("all_to_all", n * sizeof(float), algorithm, time);
    }
  }
}

// True if all ranks ended well.
bool run(const Layout& layout, const std::vector<std::string>& command) {
  const NetHosts hosts(layout.hosts);
  const TemporaryFolder folder;
  ForkedRanks ranks(layout.size(), [&](int rank, Store&) {
    hosts.enter(rank / layout.ranks_per_host);
    for (const auto& [name, value] : place_of(rank, layout, folder / "job")) {
      setenv(name.c_str(), value.c_str(), 1);
    }
    if (command.empty()) {
      Communicator comm = Communicator::join(Options::from_environment());
      measure_all_reduce(comm, layout);
      measure_all_to_all(comm);
      return true;
    }
    std::vector<char*> words;
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    execvp(words[0], words.data());
    throw_errno("run " + command[0]);
  });
  bool ok = true;
  for (int rank = 0; rank < layout.size(); ++rank) {
    if (ranks.ended_well(rank)) continue;
    fmt::print(stderr, "hosts_perf: rank {} failed\n", rank);
    ok = false;
  }
  return ok;
}

}  // namespace
}  // namespace motley::test

int main(int argc, char** argv) {
  gflags::SetUsageMessage("runs collectives or a program on hosts that are network namespaces");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  if (const std::string why = motley::test::NetHosts::missing(); !why.empty()) {
    fmt::print("hosts_perf: not run: {}\n", why);
    return 0;
  }
  try {
    const motley::test::Layout layout = motley::test::layout();
    const std::vector<std::string> command(argv + 1, argv + argc);
    if (command.empty()) {
      fmt::print(
          "{} hosts, {} ranks each, {} Gbit/s a host, but for {}\n\n{:<12} {:>10} {:<20} "
          "{:>12} {:>10}\n",
          FLAGS_hosts, FLAGS_ranks, FLAGS_gbit, FLAGS_slow.empty() ? "none" : FLAGS_slow, "call",
          "bytes", "algorithm", "time ms", "MB/s");
    }
    std::fflush(stdout);
    return motley::test::run(layout, command) ? 0 : 1;
  } catch (const motley::Error& error) {
    fmt::print(stderr, "hosts_perf: {}\n", error.what());
    return 2;
  }
}
