// Ranks that disagree on count, dtype, op or on which call comes next get the same typed error on
// every rank, with both values, at once: on every transport, also where the one that differs does
// not talk to most of the others. Scenarios 7 (unequal counts) and 10 (other order of calls).
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "comm/communicator.h"
#include "comm/error.h"
#include "comm/local.h"
#include "test/support/rank_runner.h"
#include "test/support/simulation.h"
#include "test/support/transports.h"

namespace motley::test {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr Duration kTimeout = seconds(20);  // far from what it takes

struct Outcome {
  ErrorCode code = ErrorCode::kInvalid;  // of no error
  std::string text = "no error";
  std::vector<int> ranks;
  Duration time{};
};
using Body = std::function<void(Communicator&)>;

// Runs `body` and notes how it ends.
Outcome outcome_of(Communicator& comm, const Body& body) {
  const TimePoint start = comm.clock().now();
  Outcome outcome;
  try {
    body(comm);
  } catch (const Error& error) {
    outcome = {.code = error.code(), .text = error.what(), .ranks = error.ranks()};
  }
  outcome.time = comm.clock().now() - start;
  return outcome;
}

// How `body` ends on each rank. Nobody leaves before all have ended.
std::vector<Outcome> outcomes(const std::string& transport, int size, const Body& body) {
  std::vector<Outcome> all(static_cast<std::size_t>(size));
  Options options;
  options.timeout = kTimeout;
  if (transport == "sim") {
    run_simulated({.topology = Topology::uniform(size)},
                  [&](int rank, std::unique_ptr<Transport> seat, Clock& clock) {
                    Communicator comm(std::move(seat), clock, options);
                    all[static_cast<std::size_t>(rank)] = outcome_of(comm, body);
                    clock.sleep_until(clock.now() + 2 * kTimeout);
                  });
    return all;
  }
  std::barrier done(size);
  const auto run = [&](Communicator& comm) {
    all[static_cast<std::size_t>(comm.rank())] = outcome_of(comm, body);
    done.arrive_and_wait();
  };
  if (transport == "inproc") {
    run_local(size, run, options);
    return all;
  }
  std::vector<std::unique_ptr<Transport>> seats = make_transports(transport, size, options);
  std::vector<std::thread> threads;
  for (auto& seat : seats) {
    threads.emplace_back([&] {
      Communicator comm(std::move(seat), Clock::real(), options);
      run(comm);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return all;
}

class Mismatch : public testing::TestWithParam<std::string> {
 protected:
  // All ranks fail alike, in time, and name both values.
  void expect(const std::vector<Outcome>& all, const std::vector<std::string>& facts) {
    // A second, said by the clock that no other work on this machine disturbs.
    const Duration allowed = GetParam() == "sim" ? seconds(1) : kTimeout / 2;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      EXPECT_EQ(all[rank].code, ErrorCode::kMismatch) << "rank " << rank << ": " << all[rank].text;
      EXPECT_LT(all[rank].time, allowed) << "rank " << rank << ": " << all[rank].text;
      for (const std::string& fact : facts) EXPECT_THAT(all[rank].text, HasSubstr(fact));
      EXPECT_EQ(all[rank].ranks.size(), 2u) << "rank " << rank;
    }
  }
};

TEST_P(Mismatch, Scenario7OfCountsIsToldToAll) {
  for (const int size : {2, 4, 5}) {
    if (GetParam() == "ucx" && size != 4) continue;  // its connections take longest
    for (const char* algorithm : {"ring", "direct", "halving_doubling", "auto"}) {
      SCOPED_TRACE(std::to_string(size) + " ranks, " + algorithm);
      const auto all = outcomes(GetParam(), size, [&](Communicator& comm) {
        std::vector<float> data(comm.rank() == 0 ? 409600 : 409598, 1);
        comm.all_reduce(data, ReduceOp::kSum, {.algorithm = algorithm}).wait();
      });
      expect(all, {"409600", "409598"});
    }
  }
}

TEST_P(Mismatch, OfDtypesAndOpsIsToldToAll) {
  expect(outcomes(GetParam(), 4,
                  [](Communicator& comm) {
                    std::vector<float> floats(100);
                    std::vector<std::int32_t> integers(100);
                    if (comm.rank() == 2) {
                      comm.all_reduce(integers, ReduceOp::kSum).wait();
                    } else {
                      comm.all_reduce(floats, ReduceOp::kSum).wait();
                    }
                  }),
         {"int32", "float32"});
  expect(
      outcomes(GetParam(), 4,
               [](Communicator& comm) {
                 std::vector<float> data(100);
                 comm.all_reduce(data, comm.rank() == 3 ? ReduceOp::kMax : ReduceOp::kSum).wait();
               }),
      {"sum", "max"});
}

// One rank runs a schedule where the others run another or, in shared memory, none at all. It may
// be one that only receives, and so would wait for ever, as they do for it.
TEST_P(Mismatch, OfAlgorithmsIsToldToAll) {
  for (const int odd : {0, 2, 3}) {
    SCOPED_TRACE(fmt::format("rank {}", odd));
    const auto algorithm = [odd](const Communicator& comm, const char* other) {
      return CallOptions{.algorithm = comm.rank() == odd ? other : "auto"};
    };
    for (const std::size_t n : {60, 100'000}) {
      if (n > 60 && odd != 2) continue;
      expect(outcomes(GetParam(), 4,
                      [&](Communicator& comm) {
                        std::vector<float> data(n, 1);
                        const char* const other = n == 60 ? "ring" : "tree";
                        comm.all_reduce(data, ReduceOp::kSum, algorithm(comm, other)).wait();
                      }),
             {n == 60 ? "ring" : "tree"});
    }
    expect(outcomes(GetParam(), 4,
                    [&](Communicator& comm) {
                      std::vector<float> data(60, 1);
                      comm.broadcast(data, 1, algorithm(comm, "scatter_gather")).wait();
                      comm.barrier().wait();  // who could complete it learns it here
                    }),
           {"scatter_gather"});
  }
}

// Calls that some ranks can complete without hearing from the one that differs: those learn it in
// the next.
void make_call(Communicator& comm, int kind) {
  std::vector<float> data(60, 1);
  if (kind == 0) comm.all_reduce(data, ReduceOp::kSum).wait();
  if (kind == 1) comm.broadcast(data, 0).wait();
  if (kind == 2) comm.broadcast(data, comm.size() - 1).wait();
  if (kind == 3) comm.barrier().wait();
  if (kind == 4) comm.all_to_all(data, data).wait();
}

constexpr int kBefore = 17;  // calls that all make alike, before they differ

// As errors describe them.
constexpr const char* kDescribed[] = {
    "all_reduce of count 60 float32, sum", "broadcast of count 60 float32, root 0",
    "broadcast of count 60 float32, root 3", "barrier at rank", "all_to_all of count 60 float32"};

TEST_P(Mismatch, Scenario10OfTheOrderOfCallsIsToldToAll) {
  const bool few = GetParam() != "sim";  // there all pairs, at no cost
  for (int usual = 0; usual < 5; ++usual) {
    for (int other = 0; other < 5; ++other) {
      for (int odd = 0; odd < 4; ++odd) {
        if (usual == other || (few && (usual + 2 * other + odd) % 5 != 0)) continue;
        SCOPED_TRACE(
            fmt::format("rank {} calls {} then {}, others the other way", odd, other, usual));
        const auto all = outcomes(GetParam(), 4, [&](Communicator& comm) {
          for (int call = 0; call < kBefore; ++call) make_call(comm, call % 5);
          make_call(comm, comm.rank() == odd ? other : usual);
          make_call(comm, comm.rank() == odd ? usual : other);
          comm.barrier().wait();
        });
        // What each is in, and in which call: the 18th, also where that had been completed.
        expect(all, {kDescribed[usual], kDescribed[other], fmt::format(" at rank {}", odd),
                     fmt::format("#{}", kBefore)});
      }
    }
  }
}

// A short message is complete for its sender when the receiver looks: the sender learns it in its
// next call with that, though the receiver goes on. A long one may fail for both.
TEST_P(Mismatch, OfTheCountOfAMessageIsToldToItsSenderToo) {
  for (const std::size_t n : {5, 1'000'000}) {
    for (const int between : {0, 1}) {
      SCOPED_TRACE(fmt::format("{} elements, calls between: {}", n, between));
      const auto all = outcomes(GetParam(), 2, [&](Communicator& comm) {
        std::vector<float> data(n + static_cast<std::size_t>(comm.rank()));
        Request sent = comm.rank() == 0 ? comm.send(data, 1) : Request();
        for (int call = 0; call < between; ++call) comm.barrier().wait();
        const Outcome received = outcome_of(comm, [&](Communicator&) {
          if (comm.rank() == 1) comm.recv(data, 0).wait();
        });
        sent.wait();
        if (comm.rank() == 0) return make_call(comm, 3);
        if (n == 5) (void)outcome_of(comm, [&](Communicator&) { make_call(comm, 3); });
        throw Error(received.code, received.text, received.ranks);
      });
      expect(all, {fmt::format("send_recv of count {} float32", n), " at rank 0", " at rank 1",
                   fmt::format("send_recv of count {} float32", n + 1)});
    }
  }
}

// Rank 2 had no part in the message, and calls with rank 0, whose next call with rank 1 fails.
TEST_P(Mismatch, OfTheCountOfAMessageIsToldToAllThatCallWithItsSenderThen) {
  const auto all = outcomes(GetParam(), 3, [&](Communicator& comm) {
    std::vector<int> data(5 + static_cast<std::size_t>(comm.rank())), go(1);
    if (comm.rank() == 0) comm.send(data, 1).wait();
    if (comm.rank() == 1) {
      EXPECT_THROW(comm.recv(data, 0).wait(), Error);
    }
    if (comm.rank() > 0) comm.send(go, (comm.rank() + 1) % 3).wait();
    if (comm.rank() != 1) comm.recv(go, (comm.rank() + 2) % 3).wait();
    make_call(comm, 0);
    make_call(comm, 3);  // who could complete the other learns it here
  });
  expect(all, {"send_recv of count 5 int32", "send_recv of count 6 int32"});
}

// Rank 0's part of the first call is complete when it is told of the message, and it goes on. What
// it passes on finds rank 1's part of that complete, too, and of the next as soon as it begins.
TEST_P(Mismatch, WaitsForACallThatIsNotCompleteOnceItBegins) {
  auto all = outcomes(GetParam(), 3, [&](Communicator& comm) {
    const Group both({0, 1}, {.id = 7});
    std::vector<int> data(5 + static_cast<std::size_t>(comm.rank())), go(1), first(1), next(1);
    const auto start = [&](std::vector<int>& sum) {
      return comm.all_reduce(sum, ReduceOp::kSum, {.group = &both});
    };
    if (comm.rank() == 0) {
      comm.send(data, 1).wait();
      comm.recv(go, 2).wait();  // rank 1 is in the first call
      const Outcome told = outcome_of(comm, [&](Communicator&) { start(first).wait(); });
      const Request in_next = start(next);
      comm.send(go, 1).wait();
      comm.recv(go, 2).wait();
      throw Error(told.code, told.text, told.ranks);
    }
    if (comm.rank() == 1) {
      EXPECT_THROW(comm.recv(data, 0).wait(), Error);
      Request in_first = start(first);
      comm.send(go, 2).wait();
      comm.recv(go, 0).wait();
      const Outcome told = outcome_of(comm, [&](Communicator&) {
        in_first.wait();
        start(next).wait();
        start(next).wait();  // alone
      });
      comm.send(go, 2).wait();
      throw Error(told.code, told.text, told.ranks);
    }
    for (int each = 0; each < 2; ++each) {
      comm.recv(go, 1).wait();
      comm.send(go, 0).wait();
    }
  });
  EXPECT_EQ(all.back().text, "no error");
  all.pop_back();
  expect(all, {"send_recv of count 5 int32", "send_recv of count 6 int32"});
}

// Other groups and the calls before are not touched by it.
TEST_P(Mismatch, IsOfItsGroupOnly) {
  const auto all = outcomes(GetParam(), 4, [&](Communicator& comm) {
    const Group pair({comm.rank() / 2 * 2, comm.rank() / 2 * 2 + 1},
                     {.id = 7 + static_cast<std::uint64_t>(comm.rank() / 2)});
    std::vector<int> data(10, 1);
    comm.all_reduce(data, ReduceOp::kSum).wait();
    EXPECT_THAT(data, Each(4));
    const std::size_t n = comm.rank() == 3 ? 9 : 10;
    Request request = comm.all_reduce(View(data).slice(0, n), ReduceOp::kSum, {.group = &pair});
    if (comm.rank() < 2) {
      request.wait();
      EXPECT_THAT(data, Each(8));
    } else {
      EXPECT_THROW(request.wait(), Error);
    }
    comm.barrier().wait();
  });
  for (const Outcome& outcome : all) EXPECT_EQ(outcome.text, "no error");
}

INSTANTIATE_TEST_SUITE_P(Transports, Mismatch, testing::ValuesIn(transports()),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace motley::test
