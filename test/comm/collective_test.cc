// Broadcast and barrier on every transport; requests waited for from several threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <numeric>
#include <thread>

#include "comm/communicator.h"
#include "comm/error.h"
#include "comm/executor/engine.h"
#include "comm/transport/inproc.h"
#include "test/support/errors.h"
#include "test/support/passing_transport.h"
#include "test/support/rank_runner.h"

namespace motley {
namespace {

using test::expect_error;
using test::run_ranks;
using test::run_ranks_on;
using testing::Each;

class Collective : public testing::TestWithParam<std::string> {};

// n = 0: only the agreement travels. 300,000 doubles: many pieces through a tree.
TEST_P(Collective, BroadcastGivesEveryRankTheRootsData) {
  for (const int ranks : {1, 2, 3, 8}) {
    for (const std::size_t n : {0, 1, 300'000}) {
      run_ranks_on(GetParam(), ranks, [&, ranks = ranks, n = n](Communicator& comm) {
        for (const int root : {0, ranks - 1}) {
          std::vector<double> expected(n);
          std::iota(expected.begin(), expected.end(), 100 * root);
          std::vector<double> data = comm.rank() == root ? expected : std::vector<double>(n, -1);
          comm.broadcast(data, root).wait();
          EXPECT_EQ(data, expected) << "rank " << comm.rank() << " of " << ranks;
        }
      });
    }
  }
}

TEST_P(Collective, NobodyPassesABarrierBeforeAllHaveReachedIt) {
  for (const int ranks : {1, 2, 5, 8}) {
    std::atomic<int> reached = 0;
    run_ranks_on(GetParam(), ranks, [&, ranks = ranks](Communicator& comm) {
      for (int round = 1; round <= 10; ++round) {
        ++reached;
        comm.barrier().wait();
        EXPECT_GE(reached, ranks * round);
        comm.barrier().wait();
        EXPECT_LE(reached, ranks * (round + 1));
      }
    });
  }
}

// The root may run ahead of a receiver by a bounded amount only, and loses nothing.
TEST_P(Collective, ARootMayRunAheadOfItsReceivers) {
  run_ranks_on(GetParam(), 3, [](Communicator& comm) {
    for (int round = 0; round < 200; ++round) {
      std::vector<std::int32_t> data(50'000, comm.rank() == 0 ? round : -1);
      comm.broadcast(data, 0).wait();
      ASSERT_EQ(data.front(), round);
      ASSERT_EQ(data.back(), round);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Collective, testing::ValuesIn(test::transports()));

// One thread makes progress for all: the others sleep until their own call is done.
TEST(Requests, MayBeWaitedForFromSeveralThreads) {
  run_ranks(3, [](Communicator& comm) {
    std::vector<std::vector<std::int64_t>> data(
        4, std::vector<std::int64_t>(100'000, comm.rank() + 1));
    std::vector<Request> requests;
    for (auto& buffer : data) requests.push_back(comm.all_reduce(buffer, ReduceOp::kSum));
    std::vector<std::thread> threads;
    for (Request& request : requests) threads.emplace_back([&request] { request.wait(); });
    for (std::thread& thread : threads) thread.join();
    for (const auto& buffer : data) EXPECT_THAT(buffer, Each(6));
  });
}

// What rank 0 still needs comes from rank 1, which lives: its barrier completes.
TEST(Requests, CompleteIfALostRankHadDoneItsPart) {
  InprocNetwork network(3);
  std::vector<Communicator> ranks;
  std::vector<Request> requests;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back(network.transport(rank), Clock::real(), Options{});
  }
  for (Communicator& rank : ranks) requests.push_back(rank.barrier());
  while (!requests[2].test()) ranks[0].engine().poll();
  ranks[0].report_lost(2, "a test");
  ranks[0].engine().poll();
  while (!requests[1].test()) {
  }
  requests[0].wait();
  EXPECT_THROW(ranks[0].barrier().wait(), Error);
}

// Rank 0, which rank 1 waits for, may have left because rank 2 died.
TEST(Requests, BlameTheRankThatDiedFirst) {
  for (const std::vector<int>& deaths : {std::vector<int>{2, 0}, {0, 2}}) {
    InprocNetwork network(3);
    std::vector<Communicator> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      ranks.emplace_back(network.transport(rank), Clock::real(), Options{.progress_thread = false});
    }
    Request barrier = ranks[1].barrier();
    for (const int rank : deaths) ranks[1].report_lost(rank, "a test");
    const std::string who = fmt::format("lost rank {}: a test", deaths.front());
    expect_error(ErrorCode::kPeerLost, {"rank 1 of 3", "barrier #0", who}, [&] { barrier.wait(); });
    // A later call, which fails as it begins.
    expect_error(ErrorCode::kPeerLost, {"barrier #1", who}, [&] { ranks[1].barrier().wait(); });
  }
}

// Refuses the first call for want of room, the next for want of memory.
class RefusingTransport final : public test::PassingTransport {
 public:
  using PassingTransport::PassingTransport;
  void open(Sink& sink, const CallId& call, const Fingerprint& fingerprint) override {
    if (call.number == 0) throw Error(ErrorCode::kIo, "no room for it");
    if (call.number == 1) throw std::bad_alloc();
    PassingTransport::open(sink, call, fingerprint);
  }
};

// And leave the rank as it was, so that later calls go well.
TEST(Requests, TellWhatKeptTheirCallFromStarting) {
  InprocNetwork network(2);
  const Options options{.progress_thread = false};
  Communicator one(std::make_unique<RefusingTransport>(network.transport(0)), Clock::real(),
                   options);
  Communicator two(network.transport(1), Clock::real(), options);
  std::vector<float> mine(1'000, 1), theirs(1'000, 2);
  expect_error(ErrorCode::kIo, {"rank 0 of 2", "all_reduce #0", "no room for it"},
               [&] { one.all_reduce(mine, ReduceOp::kSum).wait(); });
  expect_error(ErrorCode::kAborted, {"rank 0 of 2", "all_reduce #1", "bad_alloc"},
               [&] { one.all_reduce(mine, ReduceOp::kSum).wait(); });
  for (int i = 0; i < 2; ++i) two.all_reduce(theirs, ReduceOp::kSum).cancel();
  Request request = one.all_reduce(mine, ReduceOp::kSum);
  Request other = two.all_reduce(theirs, ReduceOp::kSum);
  while (!request.test()) two.engine().poll();
  other.wait();
  EXPECT_THAT(mine, Each(3));
  EXPECT_THAT(theirs, Each(3));
}

TEST(Requests, TestMakesProgressWithoutBlocking) {
  run_ranks(2, [](Communicator& comm) {
    std::vector<float> data(1000, 1);
    Request request = comm.all_reduce(data, ReduceOp::kSum);
    while (!request.test()) std::this_thread::yield();
    EXPECT_THAT(data, Each(2));
    EXPECT_TRUE(request.test());
  });
}

// Scenario 28: what is used after all that it belongs to was destroyed.
TEST(Requests, Scenario28OutliveTheirCommunicatorAsAborted) {
  Request late;
  std::vector<float> data(10);
  run_ranks(2, [&](Communicator& comm) {
    if (comm.rank() != 0) return;
    Communicator mine = std::move(comm);
    late = mine.all_reduce(data, ReduceOp::kSum);
  });
  try {
    late.wait();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kAborted) << error.what();
  }
}

}  // namespace
}  // namespace motley
