// Whether training by partial-reduce outlives all that can be killed, and what that costs:
// undisturbed and disturbed runs in turn (partial/kill_run.h), figures, and pass or fail.
//
//   kill_perf                      two runs of 60 s with a fault each 2 s, and as many undisturbed
//   kill_perf --runs 1 --seconds 10 --every 1
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <algorithm>

#include "comm/error.h"
#include "test/bench/partial/kill_run.h"

DEFINE_int32(workers, 8, "processes");
DEFINE_string(method, "partial_reduce:2", "as partial/method.h says");
DEFINE_int32(runs, 2, "disturbed ones");
DEFINE_double(seconds, 60, "of a disturbed run");
DEFINE_double(calm, 20, "seconds of an undisturbed run, before each and at the end");
DEFINE_double(every, 2, "seconds from one fault to the next");
DEFINE_double(step_ms, 25, "base step");
DEFINE_double(target, 0.3, "loss to be reached by all survivors");
DEFINE_double(drop, 0.1, "of the throughput that may be lost beside that of lost workers");
DEFINE_int32(seed, 1, "of the faults");
DEFINE_string(digits, MOTLEY_DIGITS, "images to learn");

namespace motley::bench {
namespace {

void print(const char* name, const KillReport& report) {
  fmt::print(
      "| {} | {} killed, {} stopped | {} killed, {} stopped | {} | {:.2f} | {:.3f} | {:.1f} | {} | "
      "{:.1f} |\n",
      name, report.worker_kills, report.worker_stops, report.controller_kills,
      report.controller_stops, report.steps, report.rate(), report.loss, report.longest_halt,
      report.most_new_descriptors, report.most_new_megabytes);
  for (const std::string& failure : report.failures) fmt::print(stderr, "{}\n", failure);
  std::fflush(stdout);
}

bool run_all() {
  KillRun run{.workers = FLAGS_workers,
              .method = FLAGS_method,
              .digits = FLAGS_digits,
              .base_step = seconds(FLAGS_step_ms / 1e3),
              .seed = static_cast<std::uint64_t>(FLAGS_seed)};
  KillReport calm, disturbed;
  bool ended = true;
  double loss = 0;
  const auto add = [&](KillReport& sum, const KillReport& part) {
    sum.steps += part.steps;
    sum.worker_seconds += part.worker_seconds;
    ended = ended && part.failures.empty();
  };
  fmt::print("{} workers, {}, base step {} ms\n\n", FLAGS_workers, FLAGS_method, FLAGS_step_ms);
  fmt::print(
      "| run | workers | controller | steps | a second of a living worker | loss | longest "
      "halt, s | new descriptors | new MiB |\n|-|-|-|-|-|-|-|-|-|\n");
  for (int i = 0; i <= FLAGS_runs; ++i) {
    run.length = seconds(FLAGS_calm);
    run.every = {};
    const KillReport undisturbed = run_kills(run);
    print("undisturbed", undisturbed);
    add(calm, undisturbed);
    if (i == FLAGS_runs) break;
    run.length = seconds(FLAGS_seconds);
    run.every = seconds(FLAGS_every);
    const KillReport report = run_kills(run);
    print("disturbed", report);
    add(disturbed, report);
    loss = std::max(loss, report.loss);
    ++run.seed;
  }
  const double lost = 1 - disturbed.rate() / calm.rate();
  const bool reached = loss > 0 && loss <= FLAGS_target;
  fmt::print("\nthroughput lost beside lost workers: {:.1f} % (at most {:.0f}): {}\n", 100 * lost,
             100 * FLAGS_drop, lost <= FLAGS_drop ? "pass" : "FAIL");
  fmt::print("loss of all survivors: {:.3f} (at most {}): {}\n", loss, FLAGS_target,
             reached ? "pass" : "FAIL");
  fmt::print("all survivors ended well and in time: {}\n", ended ? "pass" : "FAIL");
  return lost <= FLAGS_drop && reached && ended;
}

}  // namespace
}  // namespace motley::bench

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  try {
    return motley::bench::run_all() ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "kill_perf: {}\n", error.what());
    return 1;
  }
}
