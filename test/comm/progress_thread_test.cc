// A call that its rank started and does not wait for ends all the same, so that others need not
// wait until that rank is done computing.
#include "comm/executor/progress_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <numeric>
#include <random>

#include "comm/communicator.h"
#include "comm/error.h"
#include "test/support/rank_runner.h"

namespace motley {
namespace {

using test::run_ranks_on;
using testing::Each;
using Found = ProgressThread::Found;

constexpr std::size_t kElements = 300'000;  // more messages than fit the way at once

class LeftAlone : public testing::TestWithParam<std::string> {};

// Rank 0 starts a call and then does something else until rank 1, which waits for the same call,
// has its result.
TEST_P(LeftAlone, ACallEndsForThoseWhoWait) {
  for (const char* algorithm : {"auto", "ring"}) {
    std::promise<void> returned;
    run_ranks_on(GetParam(), 2, [&](Communicator& comm) {
      std::vector<float> data(kElements, static_cast<float>(comm.rank() + 1));
      Request request = comm.all_reduce(data, ReduceOp::kSum, {.algorithm = algorithm});
      if (comm.rank() == 0) {
        returned.get_future().wait();
        request.wait();
      } else {
        EXPECT_NO_THROW(request.wait());
        returned.set_value();
      }
      EXPECT_THAT(data, Each(3.0f));
    });
  }
}

// Without the thread rank 1 waits in vain.
TEST_P(LeftAlone, ACallStaysWhereItIsIfNobodyMovesItOn) {
  Options options;
  options.progress_thread = false;
  std::promise<void> gave_up;
  run_ranks_on(
      GetParam(), 2,
      [&](Communicator& comm) {
        std::vector<float> data(kElements, 1);
        Request request =
            comm.all_reduce(data, ReduceOp::kSum, {.timeout = seconds(0.2), .algorithm = "ring"});
        if (comm.rank() == 0) gave_up.get_future().wait();
        try {
          request.wait();
          ADD_FAILURE() << "rank " << comm.rank();
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kTimeout) << error.what();
        }
        if (comm.rank() == 1) gave_up.set_value();
      },
      options);
}

// Its deadline is watched, too: the error is there before anybody waits.
TEST_P(LeftAlone, ACallFailsAtItsDeadline) {
  run_ranks_on(GetParam(), 2, [](Communicator& comm) {
    const Group both({0, 1}, {.id = 3});
    if (comm.rank() == 1) return;
    std::vector<float> data(kElements, 1);
    Request request =
        comm.all_reduce(data, ReduceOp::kSum, {.group = &both, .timeout = seconds(0.1)});
    const auto failed = [&] {
      const auto call = comm.recorder().last_started();
      return call && call->state == CallRecord::kFailed;
    };
    while (!failed()) std::this_thread::yield();
    EXPECT_THROW(request.wait(), Error);
  });
}

// Requests of two groups, of many sizes, waited for, tested or left alone for a while, by two
// threads: each gets its own result.
TEST_P(LeftAlone, CallsMeetThoseWhoComeForThem) {
  run_ranks_on(GetParam(), 3, [](Communicator& comm) {
    std::mt19937 same(7);  // on all ranks
    std::mt19937 own(static_cast<unsigned>(comm.rank()));
    const Group group({2, 0, 1}, {.id = 5});
    for (int round = 0; round < 8; ++round) {
      std::vector<std::vector<std::int32_t>> data;
      std::vector<Request> requests;
      for (int i = 0; i < 4; ++i) data.emplace_back(same() % 50'000, comm.rank() + i);
      for (std::size_t i = 0; i < data.size(); ++i) {
        const Group* const on = i % 2 == 0 ? nullptr : &group;
        requests.push_back(comm.all_reduce(data[i], ReduceOp::kSum, {.group = on}));
      }
      std::thread waiter([&] { requests[0].wait(); });
      if (own() % 2 == 0) {
        while (!requests[1].test()) {
        }
      }
      volatile unsigned work = 0;
      for (unsigned i = own() % 100'000; i > 0; --i) work = work + i;
      for (std::size_t i = requests.size(); i-- > 1;) requests[i].wait();
      waiter.join();
      for (int i = 0; i < 4; ++i)
        ASSERT_THAT(data[static_cast<std::size_t>(i)], Each(3 + 3 * i)) << "round " << round;
    }
  });
}

std::vector<std::string> real_transports() {
  std::vector<std::string> names = test::transports();
  std::erase(names, "sim");  // its time passes only while all ranks wait
  return names;
}

INSTANTIATE_TEST_SUITE_P(Transports, LeftAlone, testing::ValuesIn(real_transports()),
                         [](const auto& name) { return name.param; });

// With nothing under way it stops looking; a call that is noticed wakes it.
TEST(ProgressThreadTest, SleepsWhileThereIsNothingToDo) {
  std::atomic<Found> found = Found::kNothing;
  std::atomic<int> looks = 0;
  ProgressThread thread([&] {
    ++looks;
    return found.load();
  });
  for (int round = 0; round < 3; ++round) {
    while (!thread.asleep()) std::this_thread::yield();
    found = Found::kInCare;
    const int before = looks;
    while (looks < before + 3) thread.notice();
    found = Found::kNothing;
  }
}

}  // namespace
}  // namespace motley
