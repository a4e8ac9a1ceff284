// All-reduce gives every rank the exact result, on every transport with the same test body.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>

#include "comm/communicator.h"
#include "comm/error.h"
#include "test/support/errors.h"
#include "test/support/rank_runner.h"

namespace motley {
namespace {

using test::expect_error;
using test::run_ranks;
using test::run_ranks_on;
using testing::Combine;
using testing::Each;
using testing::Values;
using testing::ValuesIn;

// Element i of rank r is r + i % 1000: the sum over p ranks is p(p-1)/2 + p (i % 1000), exactly.
std::vector<std::int32_t> input_of(int rank, std::size_t n) {
  std::vector<std::int32_t> data(n);
  for (std::size_t i = 0; i < n; ++i) data[i] = rank + static_cast<int>(i % 1000);
  return data;
}

std::vector<std::int32_t> sum_over(int ranks, std::size_t n) {
  std::vector<std::int32_t> data(n);
  for (std::size_t i = 0; i < n; ++i) {
    data[i] = ranks * (ranks - 1) / 2 + ranks * static_cast<int>(i % 1000);
  }
  return data;
}

class AllReduce : public testing::TestWithParam<std::tuple<std::string, std::string, int>> {};

// n = 0, 1: fewer elements than ranks. 1,000,003: many pieces, the last one ragged.
TEST_P(AllReduce, GivesEveryRankTheExactSum) {
  const auto& [transport, algorithm, ranks] = GetParam();
  const std::vector<std::size_t> sizes{0, 1, 7, 4097, 1'000'003};
  Options options;
  options.algorithm = algorithm;
  std::vector<std::vector<std::size_t>> right(static_cast<std::size_t>(ranks));
  run_ranks_on(
      transport, ranks,
      [&](Communicator& comm) {
        for (const std::size_t n : sizes) {
          std::vector<std::int32_t> data = input_of(comm.rank(), n);
          comm.all_reduce(data, ReduceOp::kSum).wait();
          if (data != sum_over(comm.size(), n)) continue;
          right[static_cast<std::size_t>(comm.rank())].push_back(n);
        }
      },
      options);
  EXPECT_THAT(right, Each(sizes));
}

// 1 rank: nothing to send. 3, 7: not powers of two.
INSTANTIATE_TEST_SUITE_P(Sizes, AllReduce,
                         Combine(ValuesIn(test::transports()),
                                 Values("direct", "ring", "halving_doubling"),
                                 Values(1, 2, 3, 4, 7, 8)),
                         [](const auto& world) {
                           return std::get<0>(world.param) + "_" + std::get<1>(world.param) + "_" +
                                  std::to_string(std::get<2>(world.param)) + "_ranks";
                         });

TEST(AllReduceCall, LeavesTheInputAloneWhenOutOfPlace) {
  run_ranks(4, [](Communicator& comm) {
    const std::vector<std::int32_t> in = input_of(comm.rank(), 5000);
    std::vector<std::int32_t> out(in.size(), -1);
    comm.all_reduce(in, out, ReduceOp::kSum).wait();
    EXPECT_EQ(in, input_of(comm.rank(), 5000));
    EXPECT_EQ(out, sum_over(4, 5000));
  });
}

TEST(AllReduceCall, RunsOnAnySubsetWithoutSetUp) {
  run_ranks(5, [](Communicator& comm) {
    const Group odd({3, 1}, {.id = 1});
    const Group even({0, 2, 4}, {.id = 2});
    const Group& mine = comm.rank() % 2 == 1 ? odd : even;
    for (int round = 0; round < 3; ++round) {
      std::vector<std::int64_t> data(100, comm.rank());
      comm.all_reduce(data, ReduceOp::kSum, {.group = &mine}).wait();
      EXPECT_THAT(data, Each(comm.rank() % 2 == 1 ? 4 : 6));
    }
  });
}

// Requests may be waited for in any order.
TEST(AllReduceCall, SeveralCallsMayBeUnderWay) {
  run_ranks(3, [](Communicator& comm) {
    std::vector<std::vector<std::int32_t>> data;
    std::vector<Request> requests;
    for (std::size_t i = 0; i < 5; ++i) data.push_back(input_of(comm.rank(), 10'000 * i));
    for (auto& buffer : data) requests.push_back(comm.all_reduce(buffer, ReduceOp::kSum));
    for (std::size_t i = requests.size(); i-- > 0;) requests[i].wait();
    for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(data[i], sum_over(3, 10'000 * i));
  });
}

TEST(AllReduceCall, AverageOfFloatsIsBitwiseEqualOnAllRanks) {
  std::vector<std::vector<float>> results(7, std::vector<float>(1234));
  run_ranks(7, [&](Communicator& comm) {
    std::vector<float>& data = results[static_cast<std::size_t>(comm.rank())];
    for (std::size_t i = 0; i < data.size(); ++i) {
      data[i] = 1.0f / static_cast<float>(comm.rank() + 1) + static_cast<float>(i) * 1e-3f;
    }
    comm.all_reduce(data, ReduceOp::kAverage).wait();
  });
  EXPECT_THAT(results, Each(results[0]));
  EXPECT_NEAR(results[0][0], (1 + 1 / 2. + 1 / 3. + 1 / 4. + 1 / 5. + 1 / 6. + 1 / 7.) / 7, 1e-6);
}

TEST(AllReduceErrors, DisagreementOnTheCountNamesBothCounts) {
  run_ranks(2, [](Communicator& comm) {
    std::vector<float> data(comm.rank() == 0 ? 4096 : 1024);
    expect_error(ErrorCode::kMismatch, {"all_reduce #0", "4096", "1024"},
                 [&] { comm.all_reduce(data, ReduceOp::kSum, {.timeout = seconds(10)}).wait(); });
  });
}

TEST(AllReduceErrors, DisagreementOnTheOperationNamesBoth) {
  run_ranks(2, [](Communicator& comm) {
    std::vector<float> data(8);
    const ReduceOp op = comm.rank() == 0 ? ReduceOp::kMin : ReduceOp::kMax;
    expect_error(ErrorCode::kMismatch, {"min", "max"},
                 [&] { comm.all_reduce(data, op, {.timeout = seconds(10)}).wait(); });
  });
}

TEST(AllReduceErrors, ALateRankIsNamedWhenTheDeadlinePasses) {
  run_ranks(3, [](Communicator& comm) {
    std::vector<float> data(8);
    if (comm.rank() == 2) return;  // never calls
    expect_error(ErrorCode::kTimeout, {"all_reduce #0", "rank 2"},
                 [&] { comm.all_reduce(data, ReduceOp::kSum, {.timeout = seconds(0.05)}).wait(); });
  });
}

TEST(AllReduceErrors, ALostRankFailsTheCallsOfItsGroupsOnly) {
  const auto body = [](Communicator& comm) {
    if (comm.rank() == 3) throw std::runtime_error("crashed on purpose");
    std::vector<float> data(100'000, 1);
    expect_error(ErrorCode::kPeerLost, {"all_reduce #0", "rank 3", "on purpose"},
                 [&] { comm.all_reduce(data, ReduceOp::kSum).wait(); });
    const Group survivors({0, 1, 2}, {.id = 9});
    std::vector<float> again(100'000, 1);
    comm.all_reduce(again, ReduceOp::kSum, {.group = &survivors}).wait();
    EXPECT_THAT(again, Each(3));
  };
  EXPECT_THROW(run_ranks(4, body), std::runtime_error);  // what rank 3 threw
}

TEST(AllReduceErrors, CancelledCallsTouchNothingAndLeaveTheRestAlone) {
  Options options;
  options.progress_thread = false;  // which might complete the call before it is cancelled
  const auto body = [](Communicator& comm) {
    std::vector<std::int32_t> data = input_of(comm.rank(), 50'000);
    if (comm.rank() == 0) {
      Request request = comm.all_reduce(data, ReduceOp::kSum);
      request.cancel();
      expect_error(ErrorCode::kAborted, {"cancelled"}, [&] { request.wait(); });
    } else {
      expect_error(ErrorCode::kTimeout, {"rank 0"}, [&] {
        comm.all_reduce(data, ReduceOp::kSum, {.timeout = seconds(0.05)}).wait();
      });
    }
    std::vector<std::int32_t> next = input_of(comm.rank(), 50'000);
    comm.all_reduce(next, ReduceOp::kSum).wait();
    EXPECT_EQ(next, sum_over(2, 50'000));
  };
  run_ranks(2, body, options);
}

// The value counts the calls of one rank; two that share it would wait for different calls.
TEST(AllReduceErrors, AGroupThatTwoRanksShareIsRefusedAtOnce) {
  const Group shared({0, 1}, {.id = 1});
  std::barrier both(2);
  run_ranks(2, [&](Communicator& comm) {
    std::vector<float> data(8, 1);
    Group own = shared;  // a copy is its rank's alone
    both.arrive_and_wait();
    if (comm.rank() == 0) {
      const Request unanswered = comm.all_reduce(data, ReduceOp::kSum, {.group = &shared});
      both.arrive_and_wait();
      both.arrive_and_wait();
    } else {
      both.arrive_and_wait();
      expect_error(ErrorCode::kInvalid, {"ranks 0 and 1", "a copy of its own"},
                   [&] { comm.all_reduce(data, ReduceOp::kSum, {.group = &shared}).wait(); });
      both.arrive_and_wait();
    }
    own = Group({0, 1}, {.id = 2});
    comm.all_reduce(data, ReduceOp::kSum, {.group = &own}).wait();
    EXPECT_THAT(data, Each(2));
  });
}

TEST(AllReduceErrors, WrongArgumentsAreRefusedAtOnce) {
  run_ranks(1, [](Communicator& comm) {
    std::vector<float> a(2), b(3);
    expect_error(ErrorCode::kInvalid, {"2", "3"},
                 [&] { comm.all_reduce(a, b, ReduceOp::kSum).wait(); });
    const Group others({1, 2});
    expect_error(ErrorCode::kInvalid, {"rank 0"},
                 [&] { comm.all_reduce(a, ReduceOp::kSum, {.group = &others}).wait(); });
    expect_error(ErrorCode::kInvalid, {"root 4"}, [&] { comm.broadcast(a, 4).wait(); });
  });
}

}  // namespace
}  // namespace motley
