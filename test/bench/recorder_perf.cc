// What recording costs a call: the time of start() and end(), and of over(), as a small call pays
// them.
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

// `record(i)` notes call i.
template <class Record>
void measure(const char* what, const Record& record) {
  constexpr int kCallsARun = 1'000'000;
  std::vector<double> runs;
  for (std::uint32_t run = 0; run < 20; ++run) {
    const double start = processor_seconds();
    for (std::uint32_t i = 0; i < kCallsARun; ++i) record(run * kCallsARun + i);
    runs.push_back((processor_seconds() - start) * 1e9 / kCallsARun);
  }
  std::sort(runs.begin(), runs.end());
  fmt::print("{}: {:.1f} ns a call ({:.1f} to {:.1f})\n", what, runs[runs.size() / 2], runs.front(),
             runs.back());
}

}  // namespace

int main() {
  using namespace motley;
  Recorder recorder;
  const TimePoint now = Clock::real().now();
  measure("begun and ended", [&](std::uint32_t i) {
    const std::uint64_t ticket = recorder.start({.number = i,
                                                 .kind = CallKind::kAllReduce,
                                                 .count = 1,
                                                 .algorithm = "direct",
                                                 .started = now});
    recorder.end(ticket, CallRecord::kDone, now);
  });
  const auto over = [&](std::uint32_t number, std::uint64_t count) {
    recorder.over({.number = number,
                   .kind = CallKind::kAllReduce,
                   .state = CallRecord::kDone,
                   .count = count,
                   .algorithm = "team",
                   .started = now,
                   .ended = now});
  };
  measure("over as it begins, like the one before", [&](std::uint32_t i) { over(i, 1); });
  measure("over as it begins, unlike it", [&](std::uint32_t i) { over(i, i % 2); });
}
