// Collectives whose messages UCX itself moves from device memory to device memory: that no host
// memory has a part in it, and what becomes of such calls when something goes wrong. Results are
// shown by every_collective_test and its siblings. Devices are emulated, so UCX knows their memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "comm/communicator.h"
#include "comm/controller.h"
#include "comm/error.h"
#include "comm/executor/engine.h"
#include "test/support/buffer.h"
#include "test/support/device_emulated.h"
#include "test/support/errors.h"
#include "test/support/rank_runner.h"
#include "test/support/transports.h"

namespace motley {
namespace {

using test::expect_error;
using test::make_transports;
using testing::Each;

using Data = std::vector<std::int32_t>;
using Buffer = test::Buffer<std::int32_t>;

Buffer on_device(std::size_t n, std::int32_t value) { return {Memory::kDevice, Data(n, value)}; }

Options short_pieces(const std::string& ucx_device = "auto") {
  Options options;
  options.segment_bytes = 4096;
  options.progress_thread = false;
  options.ucx_device = ucx_device;
  return options;
}

class DirectDeviceCollectives : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::ucx_is_built()) GTEST_SKIP() << "UCX is not in this build";
    test::emulate({});
  }
};

// Two ranks over UCX that one thread drives.
struct Pair {
  explicit Pair(const Options& options)
      : transports(make_transports("ucx", 2, options)),
        one(std::move(transports[0]), Clock::real(), options),
        two(std::move(transports[1]), Clock::real(), options) {}

  // Until `done` or for so many rounds.
  template <class Done>
  bool drive(Done&& done, int rounds = 100'000) {
    for (int i = 0; i < rounds && !done(); ++i) {
      one.engine().poll();
      two.engine().poll();
    }
    return done();
  }
  void all_reduce(std::size_t n) {
    Buffer mine = on_device(n, 1), other = on_device(n, 2);
    Request first = one.all_reduce(mine, ReduceOp::kSum);
    Request second = two.all_reduce(other, ReduceOp::kSum);
    EXPECT_TRUE(drive([&] { return first.test() && second.test(); }));
    EXPECT_THAT(mine.read(), Each(3));
    EXPECT_THAT(other.read(), Each(3));
  }

  std::vector<std::unique_ptr<Transport>> transports;
  Communicator one;
  Communicator two;
};

// And no more of the device's than pieces under way have in slots, which are kept for the next
// ones: each rank has 4 of 2 messages each, and at most 8 more on their way out and in.
TEST_F(DirectDeviceCollectives, UseNoHostMemory) {
  const Options options = short_pieces();
  Pair ranks(options);
  for (int i = 0; i < 4; ++i) ranks.all_reduce(40'000);
  const test::DeviceUse use = test::device_use();
  EXPECT_EQ(use.pinned_bytes, 0u);
  EXPECT_GT(use.device_bytes, 0u);
  EXPECT_LE(use.device_bytes, 2 * 4 * (2 + 8 + 8) * options.segment_bytes);
}

TEST_F(DirectDeviceCollectives, AreStagedWhereTheUserWantsThat) {
  Pair ranks(short_pieces("staged"));
  ranks.all_reduce(1'000);
  EXPECT_GT(test::device_use().pinned_bytes, 0u);
  EXPECT_EQ(test::device_use().device_bytes, 0u);
}

// `which` by rank.
std::vector<std::exception_ptr> join_two(const std::vector<std::string>& which, bool* direct) {
  test::MemoryStore store;
  std::vector<std::exception_ptr> errors(2);
  std::vector<std::unique_ptr<Transport>> transports(2);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const Options options = short_pieces(which[rank]);
      try {
        transports[rank] = make_ucx_transport({.rank = static_cast<int>(rank),
                                               .size = 2,
                                               .store = store,
                                               .name = "test",
                                               .clock = Clock::real(),
                                               .options = options,
                                               .deadline = Clock::real().now() + seconds(5)});
      } catch (const Error&) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  *direct = transports[0] && transports[0]->device_messages() != nullptr;
  return errors;
}

TEST_F(DirectDeviceCollectives, AreThereForAllRanksOrNone) {
  bool direct = false;
  EXPECT_THAT(join_two({"auto", "direct"}, &direct), Each(nullptr));
  EXPECT_TRUE(direct);
  EXPECT_THAT(join_two({"auto", "staged"}, &direct), Each(nullptr));
  EXPECT_FALSE(direct);
  const auto errors = join_two({"direct", "staged"}, &direct);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    expect_error(
        ErrorCode::kUnavailable,
        {fmt::format("rank {} of 2", rank), "MOTLEY_UCX_DEVICE", "on rank 0", "rank 1 moves"},
        [&] { std::rethrow_exception(errors[rank]); });
  }
}

// Which shared memory would join otherwise.
TEST_F(DirectDeviceCollectives, JoinTheRanksOfAHostByUcxWhereTheUserInsists) {
  const ControllerServer controller({.size = 2, .token = "secret"});
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      Options options = short_pieces("direct");
      options.rank = rank;
      options.size = 2;
      options.controller = controller.address();
      options.token = "secret";
      Communicator comm = Communicator::join(options);
      EXPECT_STREQ(comm.engine().transport().name(), "ucx");
      Buffer data = on_device(10'000, rank);
      comm.all_reduce(data, ReduceOp::kSum).wait();
      EXPECT_THAT(data.read(), Each(1));
      EXPECT_EQ(test::device_use().pinned_bytes, 0u);
      comm.barrier().wait();
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

// Given up at every moment of their way. Some of the result may be there already; no more comes.
TEST_F(DirectDeviceCollectives, TouchNothingOnceTheyAreCancelled) {
  for (int looks = 0; looks < 60; looks += 6) {
    Pair ranks(short_pieces());
    Buffer mine = on_device(20'000, 1), theirs = on_device(20'000, 2);
    Request request = ranks.one.all_reduce(mine, ReduceOp::kSum);
    Request other = ranks.two.all_reduce(theirs, ReduceOp::kSum);
    ranks.drive([] { return false; }, looks);
    request.cancel();
    const Data before = mine.read();
    ranks.drive([] { return false; }, 50);
    EXPECT_EQ(mine.read(), before) << "after " << looks << " looks";
    EXPECT_THAT(before, Each(testing::AnyOf(1, 3)));
    other.cancel();
    EXPECT_EQ(theirs.read().size(), 20'000u);
  }
}

TEST_F(DirectDeviceCollectives, DisagreeWithThoseOfHostMemory) {
  test::run_ranks_on("ucx", 2, [](Communicator& comm) {
    Buffer device = on_device(10'000, 1);
    Data host(10'000, 1);
    const View data = comm.rank() == 0 ? device.view() : View(host);
    expect_error(ErrorCode::kMismatch, {"all_reduce #0", "in device memory at rank 0", "rank 1"},
                 [&] { comm.all_reduce(data, ReduceOp::kSum).wait(); });
  });
}

TEST_F(DirectDeviceCollectives, WantTheDeviceOnWhichTheirRankJoined) {
  test::run_ranks_on("ucx", 2, [](Communicator& comm) {
    const UseDevice use(1);
    Buffer data = on_device(10, 1);
    expect_error(ErrorCode::kInvalid, {"device 1 is current", "device 0", "MOTLEY_UCX_DEVICE"},
                 [&] { return comm.all_reduce(data, ReduceOp::kSum); });
  });
}

// Rank 1 leaves while rank 0's messages wait to be fetched.
TEST_F(DirectDeviceCollectives, FailWhereAPeerHasLeft) {
  const Options options = short_pieces();
  auto transports = make_transports("ucx", 2, options);
  Communicator stays(std::move(transports[0]), Clock::real(), options);
  Buffer data = on_device(100'000, 1);
  Request request = stays.all_reduce(data, ReduceOp::kSum);
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(request.test());
  std::thread leaves([&] { transports[1].reset(); });
  expect_error(ErrorCode::kPeerLost, {"rank 1"}, [&] { request.wait(); });
  leaves.join();
  EXPECT_THAT(data.read(), Each(1));
}

TEST_F(DirectDeviceCollectives, FailWithWhatWentWrongOnTheDevice) {
  test::run_ranks_on("ucx", 2, [](Communicator& comm) {
    Buffer data = on_device(1'000, 1);
    synchronize(StreamRef{});
    Stream stream;
    if (comm.rank() == 1)
      test::enqueue(stream, []() -> bool { throw Error(ErrorCode::kIo, "a kernel failed"); });
    const auto call = [&] {
      comm.all_reduce(data, ReduceOp::kSum, {.timeout = seconds(0.2), .stream = stream}).wait();
    };
    if (comm.rank() == 0) return expect_error(ErrorCode::kTimeout, {"rank 1"}, call);
    expect_error(ErrorCode::kIo, {"rank 1 of 2", "all_reduce #0", "a kernel failed"}, call);
  });
}

}  // namespace
}  // namespace motley
