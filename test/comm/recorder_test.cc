// The recorder keeps the last 1,024 calls, loses older ones quietly, and hands out whole records
// only, whatever is written meanwhile.
#include "comm/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

namespace motley {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TimePoint at(double s) { return TimePoint(seconds(s)); }

CallRecord call(std::uint32_t number) {
  return {.number = number,
          .kind = CallKind::kAllReduce,
          .count = 3 * number,
          .algorithm = "ring",
          .started = at(number)};
}

TEST(Recorder, KeepsWhatACallWasAndHowFarItCame) {
  Recorder recorder;
  EXPECT_THAT(recorder.last(), IsEmpty());
  EXPECT_FALSE(recorder.last_started());
  EXPECT_FALSE(recorder.last_done());
  const GroupTag group{.id = GroupTag::kControllerBit | 7, .epoch = 3, .attempt = 2};
  const std::uint64_t ticket = recorder.start({.group = group,
                                               .number = ~0u,
                                               .kind = CallKind::kBroadcast,
                                               .dtype = DType::kBFloat16,
                                               .op = ReduceOp::kMax,
                                               .count = ~std::uint64_t{0},
                                               .algorithm = "tree",
                                               .started = at(1)});
  recorder.arrive(ticket, 100, at(2));
  recorder.arrive(ticket, 300, at(3));
  ASSERT_THAT(recorder.last(), SizeIs(1));
  CallRecord record = recorder.last()[0];
  EXPECT_EQ(record.state, CallRecord::kRunning);
  EXPECT_FALSE(recorder.last_done());
  recorder.end(ticket, CallRecord::kDone, at(4));
  record = *recorder.last_done();
  EXPECT_EQ(record.group, group);
  EXPECT_EQ(record.number, ~0u);
  EXPECT_EQ(record.kind, CallKind::kBroadcast);
  EXPECT_EQ(record.dtype, DType::kBFloat16);
  EXPECT_EQ(record.op, ReduceOp::kMax);
  EXPECT_EQ(record.state, CallRecord::kDone);
  EXPECT_EQ(record.count, ~std::uint64_t{0});
  EXPECT_STREQ(record.algorithm, "tree");
  EXPECT_EQ(record.bytes, 300u);
  EXPECT_EQ(record.started, at(1));
  EXPECT_EQ(record.first_message, at(2));
  EXPECT_EQ(record.last_arrival, at(3));
  EXPECT_EQ(record.ended, at(4));
}

TEST(Recorder, ForgetsAllButTheLatest) {
  Recorder recorder;
  const std::uint64_t oldest = recorder.start(call(0));
  for (std::uint32_t i = 1; i <= Recorder::kCalls; ++i) recorder.start(call(i));
  recorder.arrive(oldest, 5, at(0));  // its place belongs to another now
  recorder.end(oldest, CallRecord::kFailed, at(0));
  const std::vector<CallRecord> calls = recorder.last();
  ASSERT_THAT(calls, SizeIs(Recorder::kCalls));
  for (std::uint32_t i = 0; i < Recorder::kCalls; ++i) {
    EXPECT_EQ(calls[i].number, i + 1);
    EXPECT_EQ(calls[i].state, CallRecord::kRunning);
    EXPECT_EQ(calls[i].bytes, 0u);
  }
  EXPECT_THAT(recorder.last(3), SizeIs(3));
  EXPECT_EQ(recorder.last(3)[0].number, Recorder::kCalls - 2);
  EXPECT_EQ(recorder.last_started()->number, Recorder::kCalls);
}

// A failed call is not the last one completed.
TEST(Recorder, TellsFailedFromDone) {
  Recorder recorder;
  recorder.end(recorder.start(call(1)), CallRecord::kDone, at(1));
  recorder.end(recorder.start(call(2)), CallRecord::kFailed, at(2));
  EXPECT_EQ(recorder.last_done()->number, 1u);
  EXPECT_EQ(recorder.last_started()->state, CallRecord::kFailed);
  EXPECT_FALSE(recorder.oldest_running());
  recorder.start(call(3));
  recorder.start(call(4));
  EXPECT_EQ(recorder.oldest_running()->number, 3u);
}

CallRecord over(std::uint32_t number) {
  CallRecord record = call(number);
  record.state = CallRecord::kDone;
  record.count = 8;
  record.started = record.ended = at(1);
  return record;
}

std::vector<std::uint32_t> numbers(const std::vector<CallRecord>& calls) {
  std::vector<std::uint32_t> out;
  for (const CallRecord& each : calls) out.push_back(each.number);
  return out;
}

TEST(Recorder, KeepsEachCallThatWasOverAsItBegan) {
  Recorder recorder;
  for (const std::uint32_t number : {~0u - 1, ~0u, 0u, 1u}) recorder.over(over(number));
  EXPECT_THAT(numbers(recorder.last()), ElementsAre(~0u - 1, ~0u, 0u, 1u));
  EXPECT_THAT(numbers(recorder.last(3)), ElementsAre(~0u, 0u, 1u));
  for (const CallRecord& record : recorder.last()) {
    EXPECT_EQ(to_text(record), to_text(over(record.number)));
    EXPECT_EQ(record.state, CallRecord::kDone);
    EXPECT_EQ(record.started, at(1));
    EXPECT_EQ(record.ended, at(1));
  }
  EXPECT_EQ(recorder.last_done()->number, 1u);
  EXPECT_EQ(recorder.last_started()->number, 1u);
  for (std::uint32_t i = 2; i <= 10'000; ++i) {
    recorder.over(over(i));
    ASSERT_THAT(numbers(recorder.last(2)), ElementsAre(i - 1, i));
  }
  const std::vector<CallRecord> calls = recorder.last();
  ASSERT_THAT(calls, SizeIs(Recorder::kCalls));
  for (std::uint32_t i = 0; i < Recorder::kCalls; ++i) {
    ASSERT_EQ(calls[i].number, 10'000 - Recorder::kCalls + 1 + i);
  }
}

// A call that is unlike the one before in any one respect is kept as it was.
TEST(Recorder, KeepsWhatSetsACallApartFromTheOneBefore) {
  const std::vector<std::function<void(CallRecord&)>> changes = {
      [](CallRecord& it) { it.group.id = 5; },
      [](CallRecord& it) { it.group.epoch = 5; },
      [](CallRecord& it) { it.group.attempt = 5; },
      [](CallRecord& it) { it.number = 9; },
      [](CallRecord& it) { it.kind = CallKind::kBarrier; },
      [](CallRecord& it) { it.dtype = DType::kInt64; },
      [](CallRecord& it) { it.op = ReduceOp::kWeightedSum; },
      [](CallRecord& it) { it.count = 9; },
      [](CallRecord& it) { it.algorithm = "team"; },
      [](CallRecord& it) { it.started = at(0.5); },
      [](CallRecord& it) { it.ended = at(1.5); }};
  for (const auto& change : changes) {
    Recorder recorder;
    CallRecord other = over(3);
    change(other);
    recorder.over(over(1));
    recorder.over(over(2));
    recorder.over(other);
    const std::vector<CallRecord> calls = recorder.last();
    ASSERT_THAT(calls, SizeIs(3));
    EXPECT_EQ(calls[1].number, 2u);
    EXPECT_EQ(to_text(calls[1]), to_text(over(2)));
    EXPECT_EQ(calls[2].group, other.group);
    EXPECT_EQ(calls[2].dtype, other.dtype);
    EXPECT_EQ(to_text(calls[2]), to_text(other));
    EXPECT_EQ(calls[2].started, other.started);
    EXPECT_EQ(calls[2].ended, other.ended);
  }
}

// Whatever was begun or completed between them; and one that took its time is none of them.
TEST(Recorder, TellsTheLastCompletedAmongCallsThatWereOverAsTheyBegan) {
  Recorder recorder;
  recorder.over(over(1));
  CallRecord begun = over(2);
  begun.state = CallRecord::kRunning;
  const std::uint64_t ticket = recorder.start(begun);
  recorder.over(over(3));
  recorder.over(over(4));
  EXPECT_EQ(recorder.last_done()->number, 4u);
  EXPECT_EQ(recorder.oldest_running()->number, 2u);
  recorder.end(ticket, CallRecord::kDone, at(1));
  EXPECT_EQ(recorder.last_done()->number, 2u);
  recorder.over(over(5));
  EXPECT_EQ(recorder.last_done()->number, 5u);
  begun.number = 6;
  const std::uint64_t last = recorder.start(begun);
  recorder.arrive(last, 100, at(1));
  recorder.end(last, CallRecord::kDone, at(1));
  recorder.over(over(7));
  const std::vector<CallRecord> calls = recorder.last();
  EXPECT_THAT(numbers(calls), ElementsAre(1u, 2u, 3u, 4u, 5u, 6u, 7u));
  EXPECT_EQ(calls[5].bytes, 100u);
  EXPECT_EQ(calls[6].bytes, 0u);
}

TEST(Recorder, SaysCallsAsErrorsDo) {
  EXPECT_EQ(to_text(call(12)), "all_reduce #12 (ring, 36 float32, sum)");
  EXPECT_EQ(to_text({.number = 3}), "barrier #3");
  EXPECT_THAT(to_text({.group = {.id = GroupTag::kControllerBit | 7, .attempt = 1}}),
              HasSubstr("barrier #0 of group 7.1"));
  EXPECT_EQ(to_text({.group = GroupTag::pair(3, 70'000),
                     .number = 5,
                     .kind = CallKind::kSendRecv,
                     .count = 9}),
            "send_recv #5 from rank 3 to 70000 (9 float32)");
}

// All parts of a record come from one number; a reader that saw two halves would find two.
TEST(Recorder, IsReadWholeWhileItIsWritten) {
  Recorder recorder;
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (std::uint32_t i = 1; !stop; ++i) {
      const std::uint64_t ticket = recorder.start(call(i));
      recorder.arrive(ticket, i, at(i));
      recorder.end(ticket, CallRecord::kDone, at(i));
      for (std::uint32_t k = 1; k <= i % 4; ++k) recorder.over(over(k));
    }
  });
  std::uint64_t seen = 0;
  for (int round = 0; round < 200 || seen == 0; ++round) {
    for (const CallRecord& record : recorder.last()) {
      ++seen;
      if (record.count == 8) {
        ASSERT_EQ(to_text(record), to_text(over(record.number)));
        ASSERT_TRUE(record.number >= 1 && record.number <= 3) << record.number;
        continue;
      }
      ASSERT_EQ(record.count, 3 * record.number);
      ASSERT_EQ(record.started, at(record.number));
      ASSERT_TRUE(record.bytes == 0 || record.bytes == record.number);
      const TimePoint ended = record.state == CallRecord::kDone ? at(record.number) : TimePoint{};
      ASSERT_EQ(record.ended, ended);
    }
  }
  stop = true;
  writer.join();
}

}  // namespace
}  // namespace motley
