// Times all_reduce per transport, algorithm and size, beside the copy speed of the machine.
//
//   comm_perf [ranks]            ranks are threads; 2 by default
//
// Each row is the median over samples of the slowest rank's time of one call. algbw = bytes / time,
// busbw = algbw * 2(p-1)/p, as in nccl-tests. The limit is one memcpy of the same size, measured
// beside it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "comm/communicator.h"
#include "comm/version.h"
#include "test/support/rank_runner.h"

namespace motley {
namespace {

constexpr int kSamples = 15;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double time_memcpy(std::size_t bytes) {
  std::vector<char> from(bytes, 1), to(bytes, 2);
  std::vector<double> times;
  for (int sample = 0; sample < kSamples; ++sample) {
    const TimePoint start = Clock::real().now();
    std::memcpy(to.data(), from.data(), bytes);
    times.push_back(to_seconds(Clock::real().now() - start));
    from[static_cast<std::size_t>(sample)] += to[bytes / 2];  // keeps the copy from being left out
  }
  return median(times);
}

// Seconds of one call: the median over samples of the slowest rank.
double time_all_reduce(const std::string& transport, const std::string& algorithm, int ranks,
                       std::size_t bytes) {
  Options options;
  options.algorithm = algorithm;
  double result = 0;
  test::run_ranks_on(
      transport, ranks,
      [&](Communicator& comm) {
        std::vector<float> data(bytes / sizeof(float), 1);
        const int calls = static_cast<int>(std::clamp<std::size_t>((1 << 20) / bytes, 1, 200));
        std::vector<double> times;
        for (int sample = 0; sample < kSamples + 2; ++sample) {
          comm.barrier().wait();
          const TimePoint start = comm.clock().now();
          for (int call = 0; call < calls; ++call) comm.all_reduce(data, ReduceOp::kMax).wait();
          std::vector<double> slowest = {to_seconds(comm.clock().now() - start) / calls};
          comm.all_reduce(slowest, ReduceOp::kMax).wait();
          if (sample >= 2) times.push_back(slowest[0]);
        }
        if (comm.rank() == 0) result = median(times);
      },
      options);
  return result;
}

void run(int ranks) {
  fmt::print("{}\nall_reduce of float32 over {} ranks (threads), in place\n\n", version_text(),
             ranks);
  fmt::print("{:<8} {:<17} {:>10} {:>12} {:>12} {:>12} {:>12}\n", "transport", "algorithm", "bytes",
             "time us", "algbw GB/s", "busbw GB/s", "memcpy GB/s");
  for (const std::string& transport : test::transports()) {
    if (transport == "sim") continue;  // its time is not this machine's
    for (const char* algorithm : {"direct", "ring", "halving_doubling"}) {
      for (const std::size_t bytes : {4u, 4096u, 262'144u, 16'777'216u}) {
        const double time = time_all_reduce(transport, algorithm, ranks, bytes);
        const double bandwidth = static_cast<double>(bytes) / time / 1e9;
        fmt::print("{:<8} {:<17} {:>10} {:>12.2f} {:>12.3f} {:>12.3f} {:>12.3f}\n", transport,
                   algorithm, bytes, time * 1e6, bandwidth, bandwidth * 2 * (ranks - 1) / ranks,
                   static_cast<double>(bytes) / time_memcpy(bytes) / 1e9);
      }
    }
  }
}

}  // namespace
}  // namespace motley

int main(int argc, char** argv) {
  motley::run(argc > 1 ? std::max(1, std::atoi(argv[1])) : 2);
  return 0;
}
