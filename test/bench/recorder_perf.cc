// What recording costs a call: the time of start() and end(), as a small call pays them.
//
//   ns a call    processor time; of 20 runs of a million calls: the least, the median, the most
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <vector>

#include "comm/recorder.h"

namespace {

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

int main() {
  using namespace motley;
  constexpr int kCallsARun = 1'000'000;
  Recorder recorder;
  std::vector<double> runs;
  for (int run = 0; run < 20; ++run) {
    const double start = processor_seconds();
    const TimePoint now = Clock::real().now();
    for (std::uint32_t i = 0; i < kCallsARun; ++i) {
      const std::uint64_t ticket = recorder.start({.number = i,
                                                   .kind = CallKind::kAllReduce,
                                                   .count = 1,
                                                   .algorithm = "direct",
                                                   .started = now});
      recorder.end(ticket, CallRecord::kDone, now);
    }
    runs.push_back((processor_seconds() - start) * 1e9 / kCallsARun);
  }
  std::sort(runs.begin(), runs.end());
  fmt::print("recorder: {:.1f} ns a call ({:.1f} to {:.1f})\n", runs[runs.size() / 2], runs.front(),
             runs.back());
}
