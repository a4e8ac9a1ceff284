// Shows that the demo's figures follow from its runs: medians, time to a target, speed-ups, and a
// page that needs nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "comm/error.h"
#include "examples/demo/report.h"
#include "examples/demo/snapshots.h"

namespace demo {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Reaches log loss 0.5 at `seconds`, and 0.5004 in the end.
RunResult run(double seconds, int workers) {
  RunResult result{.curve = {{.seconds = seconds / 2, .log_loss = 0.6, .auc = 0.7},
                             {.seconds = seconds, .log_loss = 0.5, .auc = 0.8},
                             {.seconds = 2 * seconds, .log_loss = 0.5004, .auc = 0.79}}};
  for (int rank = 0; rank < workers; ++rank) {
    result.workers.push_back({.rows = 100,
                              .seconds = 2 * seconds,
                              .rounds = {{.rank = rank,
                                          .step = 1,
                                          .computed = motley::seconds(1),
                                          .together = motley::seconds(4),
                                          .end = motley::seconds(4),
                                          .group = {0, 1}}}});
  }
  return result;
}

Result result(const char* title, int workers, std::vector<double> seconds) {
  Result all{.experiment = {.title = title, .workers = workers}};
  for (const double each : seconds) all.runs.push_back(run(each, workers));
  return all;
}

Report report() {
  Report r;
  r.single = result("single worker", 1, {10, 12, 11});
  for (const int slow : {0, 1}) {
    r.all_reduce[slow] = result("all-reduce", 2, {8, 9, 100});
    r.partial_reduce[slow] = result("partial-reduce", 2, {3, 1, 4.5});
  }
  return r;
}

TEST(DemoSnapshots, GiveTheMeanOfWhatWorkersHadAtATime) {
  std::vector<Snapshots> workers(2);
  const float first[] = {1, 2}, second[] = {3, 6}, other[] = {5, 0};
  workers[0].add(0, first);
  workers[0].add(1.5, second);
  workers[1].add(1, other);
  EXPECT_THAT(mean_at(workers, 0.5), ::testing::ElementsAre(3, 1));  // before its first: its first
  EXPECT_THAT(mean_at(workers, 1.4), ::testing::ElementsAre(3, 1));
  EXPECT_THAT(mean_at(workers, 1.5), ::testing::ElementsAre(4, 3));
  EXPECT_THAT(mean_at(workers, 99), ::testing::ElementsAre(4, 3));
}

TEST(DemoSnapshots, PassThroughAFileAndRefuseOneCutShort) {
  const std::string path = ::testing::TempDir() + "/snapshots.models";
  Snapshots before;
  const float weights[] = {1, 2, 3};
  before.add(0.5, weights);
  before.save(path);
  const Snapshots after = Snapshots::load(path);
  EXPECT_EQ(after.end(), 0.5);
  EXPECT_THAT(after.at(1), ::testing::ElementsAre(1, 2, 3));
  std::ofstream(path, std::ios::binary | std::ios::trunc) << "cut";
  EXPECT_THROW(Snapshots::load(path), motley::Error);
  std::remove(path.c_str());
}

TEST(DemoReport, TellsTheMeanModelFromWorkerZerosOwn) {
  RunResult result{.curve = {{.seconds = 1, .log_loss = 0.5, .own_log_loss = 0.6},
                             {.seconds = 2, .log_loss = 0.5, .own_log_loss = 0.5}}};
  EXPECT_EQ(result.seconds_to(0.5), 1);
  EXPECT_EQ(result.seconds_to(0.5, &CurvePoint::own_log_loss), 2);
  EXPECT_EQ(result.seconds_to(0.4), std::nullopt);
}

TEST(DemoReport, TakesMedians) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(median({}), 0);
  const Report r = report();
  EXPECT_DOUBLE_EQ(r.target(), 0.5005);
  EXPECT_DOUBLE_EQ(*r.all_reduce[1].seconds_to(r.target()), 9);
  EXPECT_DOUBLE_EQ(r.speed_up(1), 3);
  EXPECT_DOUBLE_EQ(r.all_reduce[0].rows_per_second(), 200.0 / 18);
  EXPECT_THAT(r.all_reduce[0].waiting_shares(), ::testing::ElementsAre(0.75, 0.75));
  EXPECT_DOUBLE_EQ(r.log_loss_gap(r.all_reduce[0]), 0);
}

TEST(DemoReport, SaysWhereTheTargetWasNotReached) {
  Report r = report();
  r.partial_reduce[1].runs[0].curve = r.partial_reduce[1].runs[1].curve = {{.log_loss = 0.7}};
  EXPECT_FALSE(r.partial_reduce[1].seconds_to(r.target()));
  EXPECT_EQ(r.speed_up(1), 0);
  EXPECT_THAT(to_text(r), AllOf(HasSubstr("never"), HasSubstr("not reached"), HasSubstr(": 3.00")));
}

TEST(DemoReport, WritesAPageThatNeedsNoNetwork) {
  Report r = report();
  r.settings.data = "a<b";
  EXPECT_THAT(to_html(r), AllOf(HasSubstr("<svg"), HasSubstr("a&lt;b"), Not(HasSubstr("http")),
                                Not(HasSubstr("src=")), Not(HasSubstr("nan"))));
}

}  // namespace
}  // namespace demo
