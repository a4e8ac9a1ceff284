// What goes wrong in calls over NCCL (its stand-in) is an Error on every rank that says what: an
// asynchronous error, a rank that is late, dead or calls something else, a communicator that cannot
// be made. Whatever hung is aborted, nothing leaks, and what was aborted is not used again.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "test/support/nccl_ranks.h"

namespace motley::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kRanks = 4;

auto ends_with(ErrorCode code) { return Field(&Ending::code, code); }
auto says(const std::string& fact) { return Field(&Ending::text, HasSubstr(fact)); }

Options patient(double timeout_s) {
  Options options;
  options.timeout = seconds(timeout_s);
  options.nccl = "all";
  return options;
}

Request all_reduce(Communicator& comm, const OnDevice& buffer, std::size_t n,
                   const CallOptions& options = {}) {
  return comm.all_reduce(buffer.view(n, DType::kFloat32), ReduceOp::kSum, options);
}

OnDevice ones(std::size_t n) { return OnDevice(bytes_of(std::vector<float>(n, 1))); }

// Joins by NCCL, makes a call that is right, then `body`.
std::vector<Ending> endings(const std::function<void(Communicator&)>& body,
                            const Options& options) {
  return endings_on_devices(
      kRanks,
      [&](Communicator& comm) {
        comm.use_nccl();
        const OnDevice buffer = ones(10);
        all_reduce(comm, buffer, 10).wait();
        body(comm);
      },
      options);
}

TEST(NcclFailure, AnErrorInMidCallReachesEveryRankAndEndsTheCommunicator) {
  std::atomic<int> failures = 0;
  const auto ends = endings(
      [&](Communicator& comm) {
        comm.barrier().wait();
        if (comm.rank() == 2) break_nccl_launch(2, 1);
        comm.barrier().wait();
        const OnDevice a = ones(10), b = ones(10), c = ones(10);
        all_reduce(comm, a, 10).wait();
        Request broken = all_reduce(comm, b, 10);
        Request next = all_reduce(comm, c, 10);
        const Ending first = ending_of([&] { broken.wait(); });
        EXPECT_THAT(first,
                    AllOf(ends_with(ErrorCode::kPeerLost), says("remote error"), says("rank 2")));
        EXPECT_THAT(ending_of([&] { next.wait(); }).code, testing::Ne(std::nullopt));
        ++failures;
        while (failures < kRanks) std::this_thread::yield();
        all_reduce(comm, a, 10).wait();
      },
      patient(20));
  EXPECT_THAT(ends, Each(AllOf(ends_with(ErrorCode::kAborted), says("not used again"),
                               says("all_reduce #"))));
  EXPECT_THAT(nccl_faults(), IsEmpty());
  EXPECT_EQ(nccl_use().made, 1);
}

// The host's calls, and those of groups that need no communicator, go on.
TEST(NcclFailure, OfTheCommunicatorLeavesHostMemoryAlone) {
  const auto ends = endings(
      [&](Communicator& comm) {
        comm.barrier().wait();
        if (comm.rank() == 0) break_nccl_launch(0, 0);
        comm.barrier().wait();
        const OnDevice buffer = ones(10);
        EXPECT_NE(ending_of([&] { all_reduce(comm, buffer, 10).wait(); }).code, std::nullopt);
        const Group anew({0, 1, 2, 3}, {.id = 4});
        std::vector<float> data(10, 1);
        comm.all_reduce(data, ReduceOp::kSum, {.group = &anew}).wait();
        EXPECT_THAT(data, Each(4));
      },
      patient(20));
  EXPECT_THAT(ends, Each(Field(&Ending::code, std::nullopt)));
}

struct Mismatch {
  const char* name;
  std::function<Request(Communicator&, View odd)> odd;  // what rank 1 calls instead
  std::vector<std::string> facts;
};

class NcclMismatch : public testing::TestWithParam<Mismatch> {};

TEST_P(NcclMismatch, IsFoundOnEveryRankWithBothValues) {
  const auto ends = endings(
      [&](Communicator& comm) {
        const OnDevice buffer = ones(4'000);
        Request request = comm.rank() == 1
                              ? GetParam().odd(comm, buffer.view(4'000, DType::kFloat32))
                              : all_reduce(comm, buffer, 1000);
        request.wait();
      },
      patient(20));
  EXPECT_THAT(ends, Each(ends_with(ErrorCode::kMismatch)));
  for (const std::string& fact : GetParam().facts) EXPECT_THAT(ends, Each(says(fact)));
  for (const std::string& fault : nccl_faults())
    EXPECT_THAT(fault, testing::AnyOf(HasSubstr("mismatch"), HasSubstr("deadlock")));
}

INSTANTIATE_TEST_SUITE_P(
    Of, NcclMismatch,
    testing::Values(Mismatch{"count",
                             [](Communicator& comm, View odd) {
                               return comm.all_reduce(odd.slice(0, 1024), ReduceOp::kSum);
                             },
                             {"1024", "1000", "rank 1"}},
                    Mismatch{"dtype",
                             [](Communicator& comm, View odd) {
                               return comm.all_reduce(
                                   View(odd.data, 1000, DType::kInt32, odd.memory), ReduceOp::kSum);
                             },
                             {"int32", "float32", "rank 1"}},
                    Mismatch{"op",
                             [](Communicator& comm, View odd) {
                               return comm.all_reduce(odd.slice(0, 1000), ReduceOp::kProduct);
                             },
                             {"product", "sum", "rank 1"}},
                    Mismatch{"order",
                             [](Communicator& comm, View odd) {
                               return comm.all_gather(odd.slice(1000, 1000), odd);
                             },
                             {"all_gather", "all_reduce", "rank 1"}},
                    Mismatch{"determinism",
                             [](Communicator& comm, View odd) {
                               return comm.all_reduce(odd.slice(0, 1000), ReduceOp::kSum,
                                                      {.deterministic = true});
                             },
                             {"rank 1"}},
                    Mismatch{"memory",
                             [](Communicator& comm, View) {
                               static std::vector<float> host(1000, 1);
                               return comm.all_reduce(host, ReduceOp::kSum);
                             },
                             {"rank 1"}}),
    [](const auto& it) { return std::string(it.param.name); });

// What two ranks exchange only they know: the block between them names both. Members whose own
// blocks are right may have completed the call: they hear of it in their next one.
TEST(NcclMismatchOf, BlocksIsFoundOnEveryRank) {
  const auto ends = endings(
      [&](Communicator& comm) {
        const OnDevice in = ones(400), out = ones(400);
        std::vector<std::size_t> counts(kRanks, 10), due = counts;
        if (comm.rank() == 2) due[3] = 11;  // rank 3 sends 10
        const auto sum = static_cast<std::size_t>(comm.rank() == 2 ? 41 : 40);
        comm.all_to_all_v({in.view(40, DType::kFloat32), counts},
                          {out.view(sum, DType::kFloat32), due})
            .wait();
        comm.barrier().wait();
      },
      patient(20));
  EXPECT_THAT(ends, Each(AllOf(ends_with(ErrorCode::kMismatch), says("count 10"), says("count 11"),
                               Field(&Ending::ranks, ElementsAre(2, 3)))));
}

TEST(NcclFailure, ALateRankIsNamedOnEveryOther) {
  std::atomic<int> waiting = kRanks - 1;
  const auto ends = endings(
      [&](Communicator& comm) {
        const OnDevice buffer = ones(10);
        if (comm.rank() == 2) {
          while (waiting > 0) std::this_thread::yield();
          return;
        }
        const Ending end = ending_of([&] { all_reduce(comm, buffer, 10).wait(); });
        --waiting;
        EXPECT_THAT(end, AllOf(ends_with(ErrorCode::kTimeout), says("rank 2"),
                               Field(&Ending::ranks, ElementsAre(2))));
      },
      patient(0.4));
  EXPECT_THAT(ends, Each(Field(&Ending::code, std::nullopt)));
  EXPECT_THAT(nccl_faults(), IsEmpty());
}

TEST(NcclFailure, ADeadRankIsNamedOnEveryOther) {
  const auto ends = endings(
      [&](Communicator& comm) {
        if (comm.rank() == 1) return;
        const OnDevice buffer = ones(10);
        Request request = all_reduce(comm, buffer, 10);
        comm.report_lost(1, "it was killed");
        request.wait();
      },
      patient(20));
  for (const int rank : {0, 2, 3})
    EXPECT_THAT(ends[static_cast<std::size_t>(rank)],
                AllOf(ends_with(ErrorCode::kPeerLost), says("rank 1"), says("killed"),
                      Field(&Ending::ranks, ElementsAre(1))));
  EXPECT_THAT(nccl_faults(), IsEmpty());
}

TEST(NcclFailure, ACancelledCallTouchesNothingAfterwards) {
  const auto ends = endings(
      [&](Communicator& comm) {
        OnDevice buffer = ones(10);
        if (comm.rank() == 0) return;
        { const Request request = all_reduce(comm, buffer, 10); }
        EXPECT_TRUE(buffer.read() == bytes_of(std::vector<float>(10, 1)));
      },
      patient(20));
  EXPECT_THAT(ends, Each(Field(&Ending::code, std::nullopt)));
  EXPECT_EQ(device_use().unfinished, 0u);
}

TEST(NcclJoin, NamesARankThatDoesNotCome) {
  Options options;
  options.join_timeout = seconds(0.3);
  std::atomic<int> waiting = kRanks - 1;
  const auto ends = endings_on_devices(
      kRanks,
      [&](Communicator& comm) {
        if (comm.rank() == 3) {
          while (waiting > 0) std::this_thread::yield();
          return;
        }
        const Ending end = ending_of([&] { comm.use_nccl(); });
        --waiting;
        EXPECT_THAT(end, AllOf(ends_with(ErrorCode::kTimeout), says("rank 3"),
                               Field(&Ending::ranks, ElementsAre(3))));
      },
      options);
  EXPECT_THAT(ends, Each(Field(&Ending::code, std::nullopt)));
}

TEST(NcclJoin, FailsOnEveryRankWhereItFailsOnOne) {
  const auto ends = endings_on_devices(kRanks, [&](Communicator& comm) {
    comm.barrier().wait();
    if (comm.rank() == 2) break_nccl_init(2);
    comm.barrier().wait();
    comm.use_nccl();
  });
  EXPECT_THAT(ends, Each(ends_with(ErrorCode::kUnavailable)));
  EXPECT_THAT(ends[2], says("system error"));
  EXPECT_THAT(nccl_faults(), IsEmpty());
}

TEST(NcclJoin, RefusesTwoRanksOnOneDevice) {
  const auto ends = endings_on_devices(2, [&](Communicator& comm) {
    const UseDevice same(0);
    comm.use_nccl();
  });
  EXPECT_THAT(ends, Each(AllOf(ends_with(ErrorCode::kInvalid), says("invalid usage"))));
}

TEST(NcclArguments, AreBothOnTheDevice) {
  const auto ends = endings(
      [&](Communicator& comm) {
        const OnDevice out = ones(10);
        std::vector<float> in(10, 1);
        comm.all_reduce(ConstView(in), out.view(10, DType::kFloat32), ReduceOp::kSum).wait();
      },
      patient(20));
  EXPECT_THAT(ends, Each(AllOf(ends_with(ErrorCode::kInvalid), says("on the host"))));
}

}  // namespace
}  // namespace motley::test
