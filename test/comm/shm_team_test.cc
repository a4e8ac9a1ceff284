// Collectives that ranks of one host run in each other's memory: exact, the same bits everywhere,
// and no worse than messages when ranks disagree, are late, cancel or die.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "comm/communicator.h"
#include "comm/error.h"
#include "comm/executor/engine.h"
#include "comm/transport/shm_board.h"
#include "comm/transport/team.h"
#include "test/support/elements.h"
#include "test/support/errors.h"
#include "test/support/rank_runner.h"
#include "test/support/usage.h"

namespace motley {
namespace {

using test::expect_error;
using test::run_ranks_on;
using testing::Each;

void run_team(int ranks, const test::RankBody& body) { run_ranks_on("shm", ranks, body); }

TEST(ShmTeam, RunsTheCallsOfRanksThatShareMemory) {
  run_team(3, [](Communicator& comm) {
    const Team* const team = comm.engine().transport().team();
    ASSERT_NE(team, nullptr);
    for (const std::size_t bytes : {0, 4, 4096}) {
      EXPECT_TRUE(team->runs(CallKind::kAllReduce, bytes, 3));
      EXPECT_GT(team->price(CallKind::kAllReduce, bytes, comm.topology()), Duration::zero());
    }
    for (const CallKind kind : {CallKind::kAllGatherV, CallKind::kAllToAllV}) {
      EXPECT_TRUE(team->runs(kind, 0, 3));
    }
    EXPECT_FALSE(team->runs(CallKind::kAllReduce, 4, 1));
  });
}

// What the recorder says of the last call.
std::string last_algorithm(const Communicator& comm) {
  return comm.recorder().last(1).back().algorithm;
}

template <class T>
class ShmTeamTypes : public testing::Test {};
TYPED_TEST_SUITE(ShmTeamTypes, test::ElementTypes);

// Less than a vector, one line and two to the brim and one element more (52, 116 bytes), slots,
// vectors with a rest, and every larger way.
TYPED_TEST(ShmTeamTypes, ReducesEveryTypeWithEveryOperation) {
  run_team(3, [](Communicator& comm) {
    for (const std::size_t n :
         {0, 1, 6, 7, 13, 14, 26, 27, 29, 30, 52, 53, 58, 59, 1000, 4097, 300'001}) {
      test::expect_every_operation<TypeParam>(comm, n);
    }
  });
}

// In rank order: the sum of 1e8, -1e8 and 1 is 1; any other order of these floats loses the 1.
TEST(ShmTeam, ReducesInTheOrderOfTheMembers) {
  run_team(3, [](Communicator& comm) {
    for (const std::size_t n : {3, 1000, 200'000}) {
      const float mine[] = {1e8f, -1e8f, 1.f};
      const std::vector<float> in(n, mine[comm.rank()]);
      std::vector<float> out(n);
      comm.all_reduce(in, out, ReduceOp::kSum).wait();
      EXPECT_THAT(out, Each(1.f));
      EXPECT_THAT(in, Each(mine[comm.rank()]));
    }
  });
}

// Weights are powers of two, so every sum is exact. A line's brim is nearer than for other sums: it
// holds the weight too. All larger ways: slots shown at once, pieces, and buffers from allocate().
TYPED_TEST(ShmTeamTypes, AddsWhatEveryRankHasTimesItsWeight) {
  if constexpr (!std::is_integral_v<TypeParam>) {
    run_team(3, [](Communicator& comm) {
      const auto me = static_cast<std::size_t>(comm.rank());
      const double weights[] = {0.5, 2, -0.25};
      const CallOptions options{.weight = weights[me]};
      const auto expect = [](std::span<const TypeParam> data) {  // 0.5 * 2 + 2 * 4 - 0.25 * 8
        const auto wrong = std::find_if(data.begin(), data.end(), [](TypeParam x) {
          return static_cast<double>(static_cast<float>(x)) != 7;
        });
        EXPECT_EQ(wrong - data.begin(), static_cast<std::ptrdiff_t>(data.size()));
      };
      const TypeParam terms[] = {TypeParam(2.f), TypeParam(4.f), TypeParam(8.f)};
      for (const std::size_t n :
           {0, 1, 5, 6, 11, 12, 13, 14, 22, 23, 27, 28, 1000, 4097, 300'001}) {
        const std::vector<TypeParam> in(3 * n, terms[me]);
        std::vector<TypeParam> out(3 * n), block(n);
        comm.all_reduce(in, out, ReduceOp::kWeightedSum, options).wait();
        EXPECT_EQ(last_algorithm(comm), "team");
        expect(out);
        comm.reduce_scatter(in, block, ReduceOp::kWeightedSum, options).wait();
        EXPECT_EQ(last_algorithm(comm), "team");
        expect(block);
        const SharedBuffer buffer = comm.allocate(n * sizeof(TypeParam));
        const auto shared = buffer.as<TypeParam>().first(n);
        std::fill(shared.begin(), shared.end(), terms[me]);
        comm.all_reduce(View(shared), ReduceOp::kWeightedSum, options).wait();
        expect(shared);
      }
    });
  }
}

// A line to the brim and beyond it, what stands beside the line to the brim and beyond it; so often
// that every seat is used again. All calls but the first of a size are like the one before.
TEST(ShmTeam, CallsThatAreLikeTheOneBeforeAreExact) {
  run_team(2, [](Communicator& comm) {
    const auto wrong = [](const std::vector<float>& data, float due) {
      return static_cast<std::ptrdiff_t>(data.size()) - std::count(data.begin(), data.end(), due);
    };
    for (const std::size_t n : {2, 12, 14, 256, 258, 1026}) {
      for (int turn = 0; turn < 2 * ShmBoard::kSeats; ++turn) {
        const auto mine = static_cast<float>(3 * turn + comm.rank());
        const auto other = static_cast<float>(3 * turn + 1 - comm.rank());
        const std::vector<float> in(n, mine);
        std::vector<float> out(n), data = in, blocks(n, mine);
        comm.all_reduce(in, out, turn % 8 == 7 ? ReduceOp::kMax : ReduceOp::kSum).wait();
        ASSERT_EQ(wrong(out, turn % 8 == 7 ? std::max(mine, other) : mine + other), 0) << n;
        comm.all_reduce(data, ReduceOp::kSum).wait();
        ASSERT_EQ(wrong(data, mine + other), 0) << n;
        if (turn % 2 == 0) std::fill(blocks.begin(), blocks.end(), 0.f);
        comm.all_to_all(turn % 2 == 0 ? in : blocks, blocks).wait();
        ASSERT_EQ(std::count(blocks.begin(), blocks.end(), mine), static_cast<int>(n / 2));
        ASSERT_EQ(blocks[comm.rank() == 0 ? n - 1 : 0], other);
        comm.barrier().wait();
      }
    }
  });
}

TEST(ShmTeam, ArgumentsAreRefusedAlsoAfterCallsLikeThem) {
  run_team(2, [](Communicator& comm) {
    std::vector<float> data(12, 1.f);
    const View all = data;
    for (int i = 0; i < 3; ++i) {
      comm.all_reduce(all.slice(0, 4), all.slice(4, 4), ReduceOp::kSum).wait();
      expect_error(ErrorCode::kInvalid, {"overlap by accident"}, [&] {
        comm.all_reduce(all.slice(0, 4), all.slice(2, 4), ReduceOp::kSum).wait();
      });
      expect_error(ErrorCode::kInvalid, {"must be alike"}, [&] {
        comm.all_reduce(all.slice(0, 4), all.slice(4, 5), ReduceOp::kSum).wait();
      });
      comm.all_reduce(all.slice(0, 4), all.slice(8, 4), ReduceOp::kSum).wait();
      EXPECT_EQ(data[11], 2.f);
    }
  });
}

TEST(ShmTeam, RunsOnGroupsOfAnyRanksAtOnce) {
  run_team(5, [](Communicator& comm) {
    const Group odd({3, 1}, {.id = 1});
    const Group even({0, 2, 4}, {.id = 2});
    const Group& mine = comm.rank() % 2 == 1 ? odd : even;
    for (int round = 0; round < 300; ++round) {
      std::vector<std::int64_t> data(round % 3 * 100 + 1, comm.rank());
      Request world = comm.barrier();
      comm.all_reduce(data, ReduceOp::kSum, {.group = &mine}).wait();
      ASSERT_THAT(data, Each(comm.rank() % 2 == 1 ? 4 : 6));
      world.wait();
    }
  });
}

// More calls under way than a board has seats; every rank waits for them in an order of its own.
TEST(ShmTeam, ManyCallsMayBeUnderWayAndBeWaitedForInAnyOrder) {
  run_team(3, [](Communicator& comm) {
    constexpr int kCalls = ShmBoard::kSeats + 20;
    std::vector<std::vector<std::int32_t>> data;
    std::vector<Request> requests;
    for (int i = 0; i < kCalls; ++i) data.emplace_back(i * 7, comm.rank() + i);
    for (auto& buffer : data) requests.push_back(comm.all_reduce(buffer, ReduceOp::kSum));
    std::vector<int> order(kCalls);
    for (int i = 0; i < kCalls; ++i) order[static_cast<std::size_t>(i)] = i;
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(comm.rank())));
    for (const int i : order) requests[static_cast<std::size_t>(i)].wait();
    for (int i = 0; i < kCalls; ++i) {
      EXPECT_THAT(data[static_cast<std::size_t>(i)], Each(3 + 3 * i));
    }
  });
}

// Two calls of different groups, begun in opposite orders: neither waits for the other.
TEST(ShmTeam, CallsOfDifferentGroupsDoNotWaitForEachOther) {
  run_team(2, [](Communicator& comm) {
    const Group one({0, 1}, {.id = 1}), two({1, 0}, {.id = 2});
    for (const std::size_t n : {10, 2000, 500'000}) {
      std::vector<float> a(n, 1), b(n, 2);
      const auto start = [&](const Group& group, std::vector<float>& data) {
        return comm.all_reduce(data, ReduceOp::kSum, {.group = &group});
      };
      if (comm.rank() == 0) {
        Request first = start(one, a), second = start(two, b);
        second.wait();
        first.wait();
      } else {
        start(two, b).wait();
        start(one, a).wait();
      }
      EXPECT_THAT(a, Each(2.f));
      EXPECT_THAT(b, Each(4.f));
    }
  });
}

// A group made anew with the tag of an earlier one starts again at call 0: what the earlier one
// showed is not taken for the new one's.
TEST(ShmTeam, AGroupMadeAgainIsNotMistakenForTheEarlierOne) {
  run_team(2, [](Communicator& comm) {
    for (int round = 0; round < 1000; ++round) {
      const Group again({0, 1}, {.id = 5});
      std::vector<std::int32_t> data(3, round * 2 + comm.rank());
      comm.all_reduce(data, ReduceOp::kSum, {.group = &again}).wait();
      ASSERT_THAT(data, Each(4 * round + 1));
      // Another that is made again: who finds its seat in use frees all, and so the first one's.
      const Group other({0, 1}, {.id = 6});
      comm.barrier({.group = &other}).wait();
    }
  });
}

TEST(ShmTeamErrors, DisagreementIsFoundByAllWhoeverComesLast) {
  for (const int late : {0, 1, 2}) {
    run_team(3, [late](Communicator& comm) {
      const Group group({0, 1, 2}, {.id = 3});
      if (comm.rank() == late) Clock::real().sleep_until(Clock::real().now() + seconds(0.02));
      std::vector<float> data(comm.rank() == 1 ? 10 : 12);
      expect_error(ErrorCode::kMismatch, {"all_reduce #0", "10", "12"}, [&] {
        comm.all_reduce(data, ReduceOp::kSum, {.group = &group, .timeout = seconds(10)}).wait();
      });
      std::vector<float> next(4, 1);
      comm.all_reduce(next, ReduceOp::kSum, {.group = &group}).wait();
      EXPECT_THAT(next, Each(3.f));
    });
  }
}

TEST(ShmTeamErrors, DisagreementOnOperationTypeAndKindNamesBoth) {
  run_team(2, [](Communicator& comm) {
    std::vector<float> floats(8);
    std::vector<std::int32_t> ints(8);
    const bool zero = comm.rank() == 0;
    expect_error(ErrorCode::kMismatch, {"min", "max"},
                 [&] { comm.all_reduce(floats, zero ? ReduceOp::kMin : ReduceOp::kMax).wait(); });
    expect_error(ErrorCode::kMismatch, {"float32", "int32"},
                 [&] { comm.all_reduce(zero ? View(floats) : View(ints), ReduceOp::kSum).wait(); });
    expect_error(ErrorCode::kMismatch, {"barrier", "all_reduce"},
                 [&] { (zero ? comm.barrier() : comm.all_reduce(floats, ReduceOp::kSum)).wait(); });
  });
}

// Of a rank that has no part in a disagreement, and needs nobody who has.
template <class Body>
void complete_or_be_told(Body&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMismatch) << error.what();
  }
}

// The block that rank 0 has for rank 1 is longer than that expects; beyond what is laid out ahead
// too, where rank 0 waits for it to be taken. Rank 2 has no part in that block.
TEST(ShmTeamErrors, DisagreementOnABlockNamesBothLengths) {
  for (const std::size_t n : {std::size_t{3}, std::size_t{1'000'000}}) {
    run_team(3, [n](Communicator& comm) {
      const Group group({0, 1, 2}, {.id = 3});
      const std::vector<std::size_t> ones = {1, 1, 1}, more = {1, n, 1};
      const bool gives_more = comm.rank() == 0;
      const std::vector<float> in(gives_more ? n + 2 : 3);
      std::vector<float> out(3);
      const auto call = [&] {
        comm.all_to_all_v({in, gives_more ? more : ones}, {out, ones}, {.group = &group}).wait();
      };
      if (comm.rank() == 1) {
        expect_error(ErrorCode::kMismatch,
                     {"all_to_all_v #0", "rank 0", "count 1 ", "count " + std::to_string(n)}, call);
        return;
      }
      complete_or_be_told(call);
    });
  }
  run_team(2, [](Communicator& comm) {
    const Group group({0, 1}, {.id = 3});
    const std::vector<float> in(2);
    std::vector<float> out(5);
    const std::vector<std::size_t> counts = {2, comm.rank() == 0 ? 3u : 2u};
    const auto call = [&] {
      const View blocks = View(out).slice(0, counts[0] + counts[1]);
      comm.all_gather_v(in, {blocks, counts}, {.group = &group}).wait();
    };
    if (comm.rank() == 1) return complete_or_be_told(call);
    expect_error(ErrorCode::kMismatch, {"all_gather_v #0", "rank 1", "count 3 ", "count 2 "}, call);
  });
}

TEST(ShmTeamErrors, ALateRankIsNamedAndTheNextCallIsNotDisturbed) {
  run_team(3, [](Communicator& comm) {
    std::vector<float> data(8, 1);
    const Group group({0, 1, 2}, {.id = 4});
    if (comm.rank() != 2) {
      expect_error(ErrorCode::kTimeout, {"all_reduce #0", "rank 2"}, [&] {
        comm.all_reduce(data, ReduceOp::kSum, {.group = &group, .timeout = seconds(0.05)}).wait();
      });
    } else {
      group.next_call();  // never makes it
    }
    comm.all_reduce(data, ReduceOp::kSum, {.group = &group}).wait();
    EXPECT_THAT(data, Each(3.f));
  });
}

TEST(ShmTeamErrors, ACancelledCallCompletesNowhereThatNeedsIt) {
  Options options;
  options.progress_thread = false;  // which might complete the call before it is cancelled
  const auto body = [](Communicator& comm) {
    for (const std::size_t n : {10, 500'000}) {
      std::vector<float> data(n, 1);
      if (comm.rank() == 0) {
        Request request = comm.all_reduce(data, ReduceOp::kSum, {.timeout = seconds(10)});
        request.cancel();
        if (n == 10) continue;  // the other may have been there in time
        expect_error(ErrorCode::kAborted, {"cancelled"}, [&] { request.wait(); });
      } else {
        Clock::real().sleep_until(Clock::real().now() + seconds(0.02));
        try {
          comm.all_reduce(data, ReduceOp::kSum, {.timeout = seconds(0.05)}).wait();
          EXPECT_EQ(n, 10u);
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kTimeout) << error.what();
        }
      }
    }
    std::vector<float> next(10, 1);
    comm.all_reduce(next, ReduceOp::kSum).wait();
    EXPECT_THAT(next, Each(2.f));
  };
  run_ranks_on("shm", 2, body, options);
}

// Calls that fail again and again use up no seats and no memory for good.
TEST(ShmTeamErrors, SeatsOfFailedCallsAreUsedAgain) {
  run_team(2, [](Communicator& comm) {
    std::vector<float> data(100, 1);
    for (int i = 0; i < 3 * ShmBoard::kSeats; ++i) {
      const Group group({0, 1}, {.id = 100 + static_cast<std::uint64_t>(i)});
      if (comm.rank() == 0) {
        expect_error(ErrorCode::kTimeout, {"rank 1"}, [&] {
          comm.all_reduce(data, ReduceOp::kSum, {.group = &group, .timeout = seconds(1e-3)}).wait();
        });
      }
    }
    comm.all_reduce(data, ReduceOp::kSum).wait();
    EXPECT_THAT(data, Each(2.f));
  });
}

// Scenario 28: 100,000 random groups: nothing is kept of any. The first thousand warm the slots up.
TEST(ShmTeam, Scenario28KeepsNothingOfAHundredThousandGroups) {
  std::vector<std::size_t> bytes;
  std::vector<std::ptrdiff_t> files, threads;
  run_team(4, [&](Communicator& comm) {
    std::mt19937 random(7);  // the same on all ranks
    for (int i = 0; i < 100'000; ++i) {
      if (i == 1000 || i == 99'999) {
        comm.barrier().wait();
        if (comm.rank() == 0) bytes.push_back(test::resident_bytes());
        if (comm.rank() == 0) files.push_back(test::open_files());
        if (comm.rank() == 0) threads.push_back(test::threads());
        comm.barrier().wait();
      }
      std::vector<int> members;
      while (members.size() < 2) {
        members.clear();
        for (int rank = 0; rank < 4; ++rank) {
          if (random() % 2 == 0) members.push_back(rank);
        }
      }
      if (std::find(members.begin(), members.end(), comm.rank()) == members.end()) continue;
      const Group group(members, {.id = static_cast<std::uint64_t>(i) + 1});
      std::vector<std::int32_t> data(20, comm.rank() + 1);
      comm.all_reduce(data, ReduceOp::kMax, {.group = &group}).wait();
      ASSERT_EQ(data[0], members.back() + 1);
    }
  });
  EXPECT_EQ(files[0], files[1]);
  EXPECT_EQ(threads[0], threads[1]);
  EXPECT_LE(bytes[1], bytes[0] + (1 << 20));  // for whatever the threads' heaps do
}

}  // namespace
}  // namespace motley
