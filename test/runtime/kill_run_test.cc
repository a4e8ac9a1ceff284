// Shows that training by partial-reduce outlives kill -9 and SIGSTOP of workers and of the
// controller, one after the other for ten seconds: processes whose steps are slept. What that costs
// is measured by test/bench/kill_perf.
#include "test/bench/partial/kill_run.h"

#include <gtest/gtest.h>

namespace motley::bench {
namespace {

TEST(KillRun, LearnsAndEndsWhateverIsKilled) {
  const KillReport report = run_kills({.digits = MOTLEY_DIGITS,
                                       .base_step = std::chrono::milliseconds(40),
                                       .length = seconds(10),
                                       .every = seconds(0.8),
                                       .stop = seconds(0.3),
                                       .away = seconds(0.3)});
  EXPECT_TRUE(report.failures.empty()) << report.failures.front();
  EXPECT_GE(report.worker_kills, 1);
  EXPECT_GE(report.worker_stops, 1);
  EXPECT_GE(report.controller_kills, 1);
  EXPECT_GE(report.controller_stops, 1);
  EXPECT_GT(report.loss, 0);
  EXPECT_LT(report.loss, 1.0);  // it begins at 2.3
  EXPECT_LE(report.most_new_descriptors, 4);
  EXPECT_LT(report.most_new_megabytes, 32);
}

}  // namespace
}  // namespace motley::bench
