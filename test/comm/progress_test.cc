// Signs of life tell where each rank is among its calls; the controller tells it on; whoever waits
// too long learns who is behind.
#include "comm/control/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "comm/control/controller_core.h"
#include "comm/control/diagnosis.h"
#include "comm/control/local_control.h"

namespace motley {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

const TimePoint kNow(seconds(1000));

CallRecord call(std::uint32_t number, double began_ago, CallRecord::State state = {}) {
  return {.number = number,
          .kind = CallKind::kAllReduce,
          .dtype = DType::kFloat16,
          .op = ReduceOp::kMax,
          .state = state,
          .count = 1024,
          .started = kNow - seconds(began_ago),
          .ended = state == CallRecord::kRunning ? TimePoint{} : kNow - seconds(began_ago / 2)};
}

Progress some_progress() {
  return {.running = call(17, 3), .started = call(18, 1), .done = call(16, 8, CallRecord::kDone)};
}

TEST(Progress, SurvivesTheWireAsAges) {
  const std::string bytes = encode(some_progress(), kNow);
  EXPECT_LE(bytes.size(), kMaxProgressBytes);
  const TimePoint there(seconds(5));  // the receiver's clock shows something else
  const auto progress = decode_progress(bytes, there);
  ASSERT_TRUE(progress);
  EXPECT_EQ(progress->running->started, there - seconds(3));
  EXPECT_EQ(progress->running->ended, TimePoint{});
  EXPECT_EQ(progress->started->number, 18u);
  EXPECT_EQ(progress->done->ended, there - seconds(4));
  EXPECT_EQ(progress->done->state, CallRecord::kDone);
  EXPECT_EQ(to_text(*progress->done), "all_reduce #16 (1024 float16, max)");
  EXPECT_EQ(encode(*progress, there), bytes);
  const auto none = decode_progress(encode({}, kNow), kNow);
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->running || none->started || none->done);
}

// Bytes changed, cut off or added: refused, or read as something that is written alike.
TEST(Progress, RefusesWhatIsMalformed) {
  std::mt19937_64 random(3);
  const std::string good = encode(some_progress(), kNow);
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = good;
    bytes[random() % bytes.size()] = static_cast<char>(random());
    if (i % 4 == 0) bytes.resize(random() % (bytes.size() + 5));
    const auto progress = decode_progress(bytes, kNow);
    if (progress) {
      ASSERT_EQ(encode(*progress, kNow), bytes) << "trial " << i;
    } else {
      ++refused;
    }
  }
  EXPECT_GT(refused, 5'000);
  const std::string entry = encode(some_progress(), kNow);
  const std::string report = encode_report(
      {{.rank = 1, .state = RankReport::kLive, .silent = seconds(1), .progress = entry},
       {.rank = 3, .state = RankReport::kDead, .silent = seconds(2), .progress = {}}},
      7);
  ASSERT_TRUE(decode_report(report, kNow));
  EXPECT_EQ(decode_report(report, kNow)->left_out, 7u);
  EXPECT_EQ(decode_report(report, kNow)->find(1)->heard, kNow - seconds(1));
  EXPECT_EQ(decode_report(report, kNow)->find(3)->state, RankReport::kDead);
  EXPECT_EQ(decode_report(report, kNow)->find(2), nullptr);
  for (std::size_t size = 5; size < report.size(); ++size) {
    const auto part = decode_report(std::string_view(report).substr(0, size), kNow);
    EXPECT_TRUE(!part || part->ranks.size() < 2) << size;
  }
  EXPECT_FALSE(decode_report("", kNow));
}

// 100 ranks; those that have not begun call 18 must be among the 64 that are told of.
TEST(Report, LeavesOutThoseThatAreFurtherOn) {
  ControllerCore core({.size = 100}, kNow);
  for (int rank = 0; rank < 100; ++rank) {
    const std::string from = std::to_string(rank);
    core.on_message(from, {.type = MessageType::kHello, .rank = rank, .count = 100}, kNow);
    const Progress at{.started = call(rank % 10 == 9 ? 17 : 18, 1)};
    core.on_message(from, {.type = MessageType::kHeartbeat, .epoch = 1, .value = encode(at, kNow)},
                    kNow);
  }
  core.take_output();
  core.on_message("0", {.type = MessageType::kReport, .epoch = 1, .seq = 1, .number = 18}, kNow);
  const auto output = core.take_output();
  ASSERT_THAT(output, SizeIs(1));
  const auto report = decode_report(output[0].message.value, kNow);
  ASSERT_TRUE(report);
  EXPECT_THAT(report->ranks, SizeIs(kMaxReportRanks));
  EXPECT_EQ(report->left_out, 100 - kMaxReportRanks);
  for (int rank = 9; rank < 100; rank += 10) EXPECT_NE(report->find(rank), nullptr) << rank;
  const Diagnosis diagnosis = diagnose(*report, {.number = 18, .silence = seconds(1)}, kNow);
  EXPECT_THAT(diagnosis.behind, ElementsAre(9, 19, 29, 39, 49, 59, 69, 79, 89, 99));
  // Only members are told of where some are named; strangers to the job are ignored.
  core.on_message(
      "0", {.type = MessageType::kReport, .epoch = 1, .seq = 2, .ranks = {5, 3, 5, 100, -1}}, kNow);
  const auto some = decode_report(core.take_output().at(0).message.value, kNow);
  ASSERT_THAT(some->ranks, SizeIs(2));
  EXPECT_EQ(some->ranks[1].rank, 5);
}

RankReport rank(int number, Progress progress, double silent = 0.1) {
  return {.rank = number,
          .state = RankReport::kLive,
          .heard = kNow - seconds(silent),
          .progress = std::move(progress)};
}

// One rank has not called; of those that wait nobody is to blame.
TEST(Diagnosis, NamesTheRankThatIsBehind) {
  const Progress waits{
      .running = call(18, 30), .started = call(18, 30), .done = call(17, 60, CallRecord::kDone)};
  const Progress late{.started = call(17, 62, CallRecord::kDone),
                      .done = call(17, 62, CallRecord::kDone)};
  const LateCall call18{.number = 18, .rank = 0, .silence = seconds(1)};
  const Diagnosis diagnosis =
      diagnose({.ranks = {rank(0, waits), rank(1, waits), rank(2, late)}}, call18, kNow);
  EXPECT_THAT(diagnosis.behind, ElementsAre(2));
  EXPECT_THAT(diagnosis.text, HasSubstr("Rank 2 has not begun it"));
  EXPECT_THAT(diagnosis.text, HasSubstr("all_reduce #17 (1024 float16, max) ended 31.0 s ago"));
  EXPECT_THAT(diagnosis.text, HasSubstr("Last completed: all_reduce #17 by ranks 0, 1, 2."));
  const LateCall without2{.number = 18, .rank = 0, .members = {0, 1}, .silence = seconds(1)};
  const Diagnosis all_in =
      diagnose({.ranks = {rank(0, waits), rank(1, waits), rank(2, late)}}, without2, kNow);
  EXPECT_THAT(all_in.behind, IsEmpty());
  EXPECT_THAT(all_in.text, HasSubstr("All members have begun it"));
  EXPECT_THAT(all_in.text, Not(HasSubstr("2")));
}

// A stopped process keeps others from coming, and a rank that is gone does so first of all.
TEST(Diagnosis, BlamesTheFirstCause) {
  const Progress waits{.running = call(18, 30), .started = call(18, 30)};
  const Progress late{.started = call(17, 62, CallRecord::kDone)};
  const LateCall call18{.number = 18, .rank = 0, .silence = seconds(1)};
  Report report{.ranks = {rank(0, waits), rank(1, waits, 5), rank(2, late)}};
  EXPECT_THAT(diagnose(report, call18, kNow).behind, ElementsAre(1));
  EXPECT_THAT(diagnose(report, call18, kNow).text, HasSubstr("Rank 1 was last heard 5.0 s ago"));
  report.ranks[2].state = RankReport::kDeparted;
  EXPECT_THAT(diagnose(report, call18, kNow).behind, ElementsAre(2));
  EXPECT_THAT(diagnose(report, call18, kNow).text, HasSubstr("Rank 2 has left the job"));
}

// Through the real client: what one rank's recorder holds, another is told.
TEST(ControlClient, CarriesProgressToOtherRanks) {
  LocalControl control(2);
  const auto teller = control.connect(0);
  const auto asker = control.connect(1);
  Clock& clock = Clock::real();
  Recorder recorder;
  recorder.start({.number = 41, .kind = CallKind::kBroadcast, .count = 5, .started = clock.now()});
  teller->tell_of(&recorder);
  const TimePoint deadline = clock.now() + seconds(20);
  Report report;
  do {
    report = asker->report({}, 0, deadline);
    ASSERT_THAT(report.ranks, SizeIs(2));
  } while (!report.ranks[0].progress.started && clock.now() < deadline);
  EXPECT_EQ(report.ranks[0].progress.running->number, 41u);
  EXPECT_EQ(report.ranks[1].state, RankReport::kLive);
  asker->ask_report({}, 41, {0});
  while (!asker->last_report() && clock.now() < deadline) {
  }
  ASSERT_TRUE(asker->last_report());
  EXPECT_THAT(asker->last_report()->ranks, SizeIs(1));
  const Report last = *asker->last_report();
  EXPECT_THAT(status_text("rank 1 of 2", recorder, &last, clock.now()),
              HasSubstr("Rank 0 is in broadcast #41 (5 float32)"));
  EXPECT_THAT(status_text("rank 1 of 2", recorder, nullptr, clock.now()), HasSubstr("running"));
  teller->tell_of(nullptr);
}

}  // namespace
}  // namespace motley
