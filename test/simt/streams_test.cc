// The emulated devices themselves: work is done late, so that a missing wait shows, and never out
// of order; several threads may drive them; host code that touches device memory is found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "comm/error.h"
#include "test/support/device_emulated.h"

namespace motley::test {
namespace {

// Work that writes down its number.
struct Log {
  std::vector<int> entries;
  void add(StreamRef stream, int number) {
    enqueue(stream, [this, number] {
      entries.push_back(number);
      return true;
    });
  }
};

TEST(Streams, DoNothingUntilSomebodyWaits) {
  Log log;
  const Stream one, two;
  log.add(one, 1);
  log.add(two, 2);
  log.add(one, 3);
  EXPECT_THAT(log.entries, testing::IsEmpty());
  EXPECT_EQ(device_use().unfinished, 3u);
  synchronize(one);
  EXPECT_THAT(log.entries, testing::ElementsAre(1, 3)) << "and no more than was waited for";
  synchronize(two);
  EXPECT_THAT(log.entries, testing::ElementsAre(1, 3, 2));
}

TEST(Streams, DoFirstWhatHoldsThem) {
  Log log;
  const Stream one, two, three;
  Event first, second;
  log.add(one, 1);
  first.record(one);
  log.add(one, 4);
  first.hold(two);
  log.add(two, 2);
  second.record(two);
  second.hold(three);
  log.add(three, 3);
  synchronize(three);
  EXPECT_THAT(log.entries, testing::ElementsAre(1, 2, 3));
  synchronize(one);
}

// With whatever seed: in order within each stream, but not always the same between them.
TEST(Streams, InterleaveByTheSeed) {
  std::vector<std::vector<int>> seen;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    emulate({.seed = seed});
    Log log;
    const Stream one, two;
    for (int i = 0; i < 4; ++i) log.add(one, i);
    for (int i = 10; i < 14; ++i) log.add(two, i);
    Event last_one, last_two;
    last_one.record(one);
    last_two.record(two);
    while (!last_one.done() || !last_two.done()) {
    }
    EXPECT_THAT(log.entries, testing::SizeIs(8));
    std::vector<int> of_one, of_two;
    for (const int entry : log.entries) (entry < 10 ? of_one : of_two).push_back(entry);
    EXPECT_THAT(of_one, testing::ElementsAre(0, 1, 2, 3)) << "seed " << seed;
    EXPECT_THAT(of_two, testing::ElementsAre(10, 11, 12, 13)) << "seed " << seed;
    seen.push_back(log.entries);
  }
  EXPECT_TRUE(std::ranges::any_of(seen, [&](const auto& order) { return order != seen[0]; }));
}

TEST(Streams, TryAgainWhatIsNotDone) {
  const Stream stream;
  std::atomic<bool> may_go = false;
  std::atomic<bool> asked = false;
  enqueue(stream, [&] {
    asked = true;
    return may_go.load();
  });
  std::thread other([&] {
    while (!asked) std::this_thread::yield();
    may_go = true;
  });
  synchronize(stream);
  EXPECT_TRUE(may_go);
  other.join();
}

TEST(Streams, ThrowAtTheWaitWhatWentWrong) {
  const Stream stream;
  Log log;
  enqueue(stream, []() -> bool { throw std::runtime_error("as planned"); });
  log.add(stream, 1);
  EXPECT_THROW(synchronize(stream), std::runtime_error);
  EXPECT_NO_THROW(synchronize(stream));
  EXPECT_THAT(log.entries, testing::ElementsAre(1));
}

TEST(Streams, AreDrivenByAnyThread) {
  constexpr int kThreads = 4, kRounds = 50;
  constexpr std::size_t kCount = 256;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      const UseDevice use(t % 2);
      const Stream stream;
      const DeviceBuffer buffer(kCount * 4);
      for (int round = 0; round < kRounds; ++round) {
        std::vector<std::int32_t> in(kCount, round), out(kCount, -1);
        copy(buffer.view(kCount, DType::kInt32), in, stream);
        copy(out, buffer.view(kCount, DType::kInt32), stream);
        Event event;
        event.record(stream);
        while (!event.done()) {
        }
        EXPECT_THAT(out, testing::Each(round)) << "thread " << t;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(device_use(), DeviceUse{});
}

// Copies of parts of one buffer, from and to the host.
class CopiesInStreams : public testing::Test {
 protected:
  void write(StreamRef stream, std::size_t first = 0) { copy(at(first), kHalf, stream); }
  void read(StreamRef stream, std::size_t first = 0) {
    copy(results_.emplace_back(2), at(first), stream);
  }
  static void expect_refused(const std::function<void()>& copies) {
    try {
      copies();
      ADD_FAILURE() << "nothing orders them";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo);
      EXPECT_THAT(error.what(), testing::HasSubstr("nothing orders them"));
    }
  }

  Stream one_, two_, three_;

 private:
  View at(std::size_t first) const { return buffer_.view(4, DType::kInt32).slice(first, 2); }

  const std::vector<std::int32_t> kHalf = {1, 2};
  std::deque<std::vector<std::int32_t>> results_;
  DeviceBuffer buffer_{16};
};

TEST_F(CopiesInStreams, AreRefusedIfTheyMeetAndNothingOrdersThem) {
  write(one_);
  expect_refused([&] { read(two_); });
  expect_refused([&] { write(two_); });
  expect_refused([&] { read({}, 1); });
  EXPECT_EQ(device_use().unfinished, 1u);
  read(one_);
  synchronize(one_);
  read(one_);
  expect_refused([&] { write(two_); });
}

// And that all of them are done already, of which nobody was told, orders nothing.
TEST_F(CopiesInStreams, AreRefusedWhateverTheTiming) {
  write(one_);
  enqueue(three_, [] { return device_use().unfinished == 1; });
  Event other;
  other.record(three_);
  while (!other.done()) {
  }
  EXPECT_EQ(device_use().unfinished, 0u);
  expect_refused([&] { read(two_); });
}

TEST_F(CopiesInStreams, MayMeetWhereAllReadOrAnythingOrdersThem) {
  write(one_);
  write(two_, 2);  // another half
  Event first, second;
  first.record(one_);
  first.hold(two_);
  second.record(two_);
  second.hold(three_);
  read(three_, 1);
  synchronize(three_);  // and so all that held it
  read(one_);
  read(two_, 1);
  read(three_, 2);
  Event all;
  for (const Stream* stream : {&one_, &two_, &three_}) {
    all.record(*stream);
    while (!all.done()) {
    }
  }
  write({});
  write({}, 2);
}

TEST_F(CopiesInStreams, ComeAfterAHoldOnlyIfTheyWereAskedForBeforeIt) {
  Event event;
  write(one_);
  event.record(one_);
  write(one_);
  event.hold(two_);
  expect_refused([&] { read(two_); });
}

// Which waits for its device.
TEST_F(CopiesInStreams, ComeAfterABufferThatHasGone) {
  write(one_);
  { const DeviceBuffer gone(4); }
  read(two_);
}

TEST(Streams, RefuseCopiesBeyondABuffer) {
  const DeviceBuffer buffer(16);
  std::vector<std::int32_t> host(5);
  const View beyond = buffer.view(5, DType::kInt32);
  EXPECT_THROW(copy(beyond, host, {}), Error);
  EXPECT_THROW(copy(host, beyond, {}), Error);
}

// Whether this process may read and write a byte there; asked of the kernel, so nobody has to die.
bool may_touch(std::byte* at) {
  int ends[2] = {-1, -1};
  if (pipe(ends) != 0) throw_errno("pipe");
  const bool reads = write(ends[1], at, 1) == 1;
  const bool writes = reads && read(ends[0], at, 1) == 1;
  close(ends[0]);
  close(ends[1]);
  return writes;
}

TEST(Streams, KeepHostCodeFromForbiddenMemoryWhileNoDeviceWorks) {
  emulate({.host_access = HostAccess::kForbidden});
  {
    std::vector<std::int32_t> in = {1, 2}, out = {0, 0};
    const DeviceBuffer buffer(8);
    const View view = buffer.view(2, DType::kInt32);
    copy(view, in, {});
    copy(out, view, {});
    bool at_work = false;
    enqueue({}, [&] { return at_work = may_touch(view.data), true; });
    EXPECT_FALSE(may_touch(view.data));
    synchronize({});
    EXPECT_EQ(out, in) << "the device itself may";
    EXPECT_TRUE(at_work);
    EXPECT_FALSE(may_touch(view.data));
  }
  emulate({});
}

// So a copy that nobody waited for is a segmentation fault.
TEST(Streams, LetNobodyTouchMemoryThatWasGivenBack) {
  std::byte* pinned_at = nullptr;
  std::byte* device_at = nullptr;
  {
    const PinnedBuffer pinned(16);
    const DeviceBuffer device(16);
    pinned_at = pinned.data();
    device_at = device.view(16, DType::kInt8).data;
    EXPECT_TRUE(may_touch(pinned_at) && may_touch(device_at));
  }
  for (int i = 0; i < 20; ++i) {
    const PinnedBuffer next(16);
    EXPECT_NE(next.data(), pinned_at) << "nor are its addresses used again";
    EXPECT_FALSE(may_touch(pinned_at) || may_touch(device_at));
  }
}

}  // namespace
}  // namespace motley::test
