// Collectives on device memory beyond their results, which every_collective_test and its siblings
// show: what they wait for, what overlaps, what they keep, and that no call that has failed touches
// a buffer. Devices are emulated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "comm/communicator.h"
#include "comm/error.h"
#include "comm/executor/engine.h"
#include "comm/transport/inproc.h"
#include "test/support/buffer.h"
#include "test/support/device_emulated.h"
#include "test/support/errors.h"
#include "test/support/passing_transport.h"
#include "test/support/rank_runner.h"

namespace motley {
namespace {

using test::expect_error;
using test::run_ranks;
using testing::Each;
using testing::Ge;

using Data = std::vector<std::int32_t>;
using Buffer = test::Buffer<std::int32_t>;

class DeviceCollectives : public testing::Test {
 protected:
  DeviceCollectives() { test::emulate({.host_access = test::HostAccess::kForbidden}); }
};

Buffer on_device(std::size_t n, std::int32_t value) { return {Memory::kDevice, Data(n, value)}; }

// Of two ranks that one thread drives.
void complete(Request& one, Request& other) {
  for (bool done = false; !done;) {
    const bool first = one.test();
    done = other.test() && first;
  }
}

Options short_pieces() {
  Options options;
  options.segment_bytes = 4096;
  options.progress_thread = false;
  return options;
}

// The stream's own work has not begun while the call is tested again and again.
TEST_F(DeviceCollectives, ComeAfterWhatIsInTheirStream) {
  std::atomic<bool> released = false;
  std::atomic<int> waiting = 0;
  run_ranks(2, [&](Communicator& comm) {
    Buffer data = on_device(10'000, -1);
    synchronize(StreamRef{});
    const Data own(10'000, comm.rank() + 1);
    Stream stream;
    test::enqueue(stream, [&] { return released.load(); });
    motley::copy(data, ConstView(own), stream);
    Request request = comm.all_reduce(data, ReduceOp::kSum, {.stream = stream});
    for (int i = 0; i < 50; ++i) EXPECT_FALSE(request.test());
    if (++waiting == 2) released = true;
    request.wait();
    EXPECT_THAT(data.read(), Each(3));
  });
}

TEST_F(DeviceCollectives, SayThatTheyWaitForTheirStreamAndThenTouchNothing) {
  std::atomic<int> failed = 0;
  run_ranks(2, [&](Communicator& comm) {
    Buffer data = on_device(10'000, 7 + comm.rank());
    synchronize(StreamRef{});  // for which the call's stream does not wait
    Stream stream;
    if (comm.rank() == 0) test::enqueue(stream, [&] { return failed == 2; });
    const CallOptions options{.timeout = seconds(0.05), .stream = stream};
    // A slow rank 1 is still copying then.
    const std::string what = comm.rank() == 0 ? "work in the stream" : "rank 1 of 2";
    expect_error(ErrorCode::kTimeout, {"all_reduce #0", what},
                 [&] { comm.all_reduce(data, ReduceOp::kSum, options).wait(); });
    ++failed;
    synchronize(stream);
    EXPECT_THAT(data.read(), Each(7 + comm.rank()));
    Buffer next = on_device(10'000, 1);
    comm.all_reduce(next, ReduceOp::kSum).wait();
    EXPECT_THAT(next.read(), Each(2));
  });
}

// Given up at every moment of its way, after any number of looks at its copies.
TEST_F(DeviceCollectives, TouchNothingOnceTheyAreCancelled) {
  for (int looks = 0; looks < 40; ++looks) {
    InprocNetwork network(2);
    Communicator one(network.transport(0), Clock::real(), short_pieces());
    Communicator two(network.transport(1), Clock::real(), short_pieces());
    Buffer mine = on_device(20'000, 1);
    synchronize(StreamRef{});
    Data theirs(20'000, 2);
    Request request = one.all_reduce(mine, ReduceOp::kSum);
    Request other = two.all_reduce(theirs, ReduceOp::kSum);
    for (int i = 0; i < looks; ++i) {
      one.engine().poll();
      two.engine().poll();
    }
    request.cancel();
    // Some of the result may be there already, but no more comes.
    EXPECT_EQ(test::device_use().unfinished, 0u) << "after " << looks << " looks";
    const Data before = mine.read();
    for (int i = 0; i < 20; ++i) two.engine().poll();
    EXPECT_EQ(mine.read(), before) << "after " << looks << " looks";
    EXPECT_THAT(Data({before.front(), before.back()}), Each(testing::AnyOf(1, 3)));
  }
}

struct Seen {
  std::vector<std::size_t> unfinished;  // on devices, whenever a message was sent
  bool polled = true;                   // since a receive was posted
  int waits_unpolled = 0;
};

class WatchedTransport final : public test::PassingTransport {
 public:
  WatchedTransport(std::unique_ptr<Transport> inner, Seen& seen)
      : PassingTransport(std::move(inner)), seen_(seen) {}
  bool post_send(int to, const Tag& tag, ConstBytes data, Sink& sink,
                 std::uint32_t cookie) override {
    seen_.unfinished.push_back(test::device_use().unfinished);
    return PassingTransport::post_send(to, tag, data, sink, cookie);
  }
  void post_recv(int from, const Tag& tag, Sink& sink, std::uint32_t cookie) override {
    seen_.polled = false;
    PassingTransport::post_recv(from, tag, sink, cookie);
  }
  bool poll() override {
    const bool moved = PassingTransport::poll();
    seen_.polled = true;
    return moved;
  }
  void wait(TimePoint until) override {
    seen_.waits_unpolled += !seen_.polled;
    PassingTransport::wait(until);
  }

 private:
  Seen& seen_;
};

// What was under way on the device when each message of a broadcast of 16 pieces was sent.
std::vector<std::size_t> copies_beside_messages(int slots) {
  Options options = short_pieces();
  options.staging_slots = slots;
  Seen seen;
  InprocNetwork network(2);
  Communicator root(std::make_unique<WatchedTransport>(network.transport(0), seen), Clock::real(),
                    options);
  Communicator other(network.transport(1), Clock::real(), options);
  Buffer data = on_device(16 * 1024, 5);
  synchronize(StreamRef{});
  Data got(16 * 1024);
  Request sends = root.broadcast(data, 0, {.algorithm = "tree"});
  Request receives = other.broadcast(got, 0, {.algorithm = "tree"});
  complete(sends, receives);
  EXPECT_THAT(got, Each(5));
  return seen.unfinished;
}

// While piece k is on the wire those after it are being copied, as many as there are slots; only
// the last ones have none after them. With one slot nothing overlaps.
TEST_F(DeviceCollectives, CopyLaterPiecesWhileOneIsOnTheWire) {
  const std::vector<std::size_t> alone = copies_beside_messages(1);
  ASSERT_EQ(alone.size(), 16u);
  EXPECT_THAT(alone, Each(0u));
  const std::vector<std::size_t> beside = copies_beside_messages(4);
  ASSERT_EQ(beside.size(), 16u);
  for (std::size_t k = 0; k < 12; ++k) EXPECT_THAT(beside[k], Ge(1u)) << "piece " << k;
}

// What goes on after a copy may expect a message that is there already, of which nothing would tell
// a rank that waited now.
TEST_F(DeviceCollectives, SleepOnlyAfterALookForWhatTheyHaveComeToExpect) {
  for (int round = 0; round < 20; ++round) {
    Seen seen;
    InprocNetwork network(2);
    Communicator one(std::make_unique<WatchedTransport>(network.transport(0), seen), Clock::real(),
                     short_pieces());
    Communicator two(network.transport(1), Clock::real(), short_pieces());
    Data theirs(1'000, 2);
    Request other = two.all_reduce(theirs, ReduceOp::kSum, {.algorithm = "direct"});
    two.engine().poll();
    Buffer mine = on_device(1'000, 1);
    Request request = one.all_reduce(mine, ReduceOp::kSum, {.algorithm = "direct"});
    std::thread peer([&] { other.wait(); });
    request.wait();
    peer.join();
    EXPECT_EQ(seen.waits_unpolled, 0);
  }
}

TEST_F(DeviceCollectives, AllocateNothingOnceOneLikeThemHasRun) {
  Options options = short_pieces();
  options.staging_bytes = 64 << 10;
  InprocNetwork network(2);
  Communicator one(network.transport(0), Clock::real(), options);
  Communicator two(network.transport(1), Clock::real(), options);
  const auto all_reduce = [&](std::size_t n) {
    Buffer a = on_device(n, 1), b = on_device(n, 2);
    Request first = one.all_reduce(a, ReduceOp::kSum);
    Request second = two.all_reduce(b, ReduceOp::kSum);
    complete(first, second);
    EXPECT_THAT(a.read(), Each(3));
  };
  all_reduce(100'000);
  const test::DeviceUse use = test::device_use();
  EXPECT_GT(use.pinned_bytes, 0u);
  EXPECT_LE(use.pinned_bytes, 2 * options.staging_bytes);
  for (int i = 0; i < 5; ++i) all_reduce(100'000);
  EXPECT_EQ(test::device_use(), use);
  for (const std::size_t n : {1, 1'000, 30'000, 0}) all_reduce(n);
  EXPECT_LE(test::device_use().pinned_bytes, 2 * options.staging_bytes);
}

// A piece that needs more than there may be has one slot all the same.
TEST_F(DeviceCollectives, HaveOnePieceUnderWayWhereSlotsAreUsedUp) {
  Options options;
  options.staging_bytes = 0;
  run_ranks(
      3,
      [](Communicator& comm) {
        std::vector<Buffer> data;
        std::vector<Request> requests;
        for (int i = 0; i < 4; ++i) data.push_back(on_device(300'000, i));
        for (Buffer& buffer : data) requests.push_back(comm.all_reduce(buffer, ReduceOp::kSum));
        for (std::size_t i = requests.size(); i-- > 0;) requests[i].wait();
        for (int i = 0; i < 4; ++i) {
          EXPECT_THAT(data[static_cast<std::size_t>(i)].read(), Each(3 * i));
        }
      },
      options);
}

TEST_F(DeviceCollectives, FailWithWhatWentWrongOnTheDevice) {
  run_ranks(2, [](Communicator& comm) {
    Buffer data = on_device(1'000, 1);
    synchronize(StreamRef{});
    Stream stream;
    if (comm.rank() == 1) {
      test::enqueue(stream, []() -> bool { throw Error(ErrorCode::kIo, "a kernel failed"); });
    }
    const auto call = [&] {
      comm.all_reduce(data, ReduceOp::kSum, {.timeout = seconds(0.1), .stream = stream}).wait();
    };
    if (comm.rank() == 0) return expect_error(ErrorCode::kTimeout, {"all_reduce #0"}, call);
    expect_error(ErrorCode::kIo, {"rank 1 of 2", "all_reduce #0", "a kernel failed"}, call);
  });
}

// Of the two copies that the call begins with the emulator refuses the second, as nothing orders it
// after what is under way in the default stream.
TEST_F(DeviceCollectives, FailAsTheyStartAndLeaveNoCopyUnderWay) {
  InprocNetwork network(2);
  Communicator one(network.transport(0), Clock::real(), short_pieces());
  const Data late(1'000, 2);
  Buffer in = on_device(2'000, 1), out = on_device(2'000, 0);
  synchronize(StreamRef{});
  motley::copy(in.block(1, 1'000), ConstView(late), StreamRef{});
  const Stream stream;
  Request request = one.all_to_all(in, out, {.stream = stream});
  expect_error(ErrorCode::kIo, {"rank 0 of 2", "all_to_all #0", "nothing orders them"},
               [&] { request.wait(); });
  EXPECT_EQ(test::device_use().unfinished, 1u) << "but for what the call has no part in";
}

TEST_F(DeviceCollectives, RefuseMemoryThatIsNotWhereItIsSaidToBe) {
  run_ranks(1, [](Communicator& comm) {
    Data host(4);
    Buffer device = on_device(4, 1);
    View not_there(host);
    not_there.memory = Memory::kDevice;
    View not_here = device;
    not_here.memory = Memory::kHost;
    expect_error(ErrorCode::kInvalid, {"all_gather", "`out`", "said to lie in device", "are host"},
                 [&] { return comm.all_gather(device, not_there); });
    expect_error(ErrorCode::kInvalid, {"all_gather", "`in`", "said to lie in host", "are device"},
                 [&] { return comm.all_gather(not_here, device); });
  });
}

TEST(DeviceCollectivesWithoutDevices, AreRefused) {
  test::emulate({.count = 0});
  run_ranks(1, [](Communicator& comm) {
    Data data(4);
    View device(data);
    device.memory = Memory::kDevice;
    expect_error(ErrorCode::kUnavailable, {"all_gather", "device memory", "no device"},
                 [&] { return comm.all_gather(data, device); });
  });
}

}  // namespace
}  // namespace motley
