// What users of other libraries met, by the numbers of the list of reports on partial averaging.
#include <malloc.h>

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/controller.h"
#include "comm/partial_reduce.h"
#include "test/comm/partial_ranks.h"

namespace motley::test {
namespace {

using testing::Each;
using testing::ElementsAre;

// A rank is gone before its first average: nobody waits for it longer than for the word of that.
TEST(PartialReduce, PartialScenario13APeerIsGoneBeforeItsFirstAverage) {
  run(3, [&](Communicator& comm, LocalControl& control) {
    if (comm.rank() == 2) return control.report_lost(2, "the test ended it");
    PartialReducer reducer(comm, {.group_size = 3});
    std::vector<double> model(100, comm.rank());
    EXPECT_THAT(reducer.average(model, 0).group, ElementsAre(0, 1));
    EXPECT_THAT(model, Each(0.5));
  });
}

// A call that timed out has done with the caller's memory, whatever comes later: sanitizers would
// see it. Between hosts (ucx), too, where it is the network that writes.
class PartialReduceMemory : public testing::TestWithParam<const char*> {};

TEST_P(PartialReduceMemory, PartialScenario32OfACallThatTimedOutIsTheCallers) {
  if (GetParam() == std::string("ucx") && ucx_is_missing()) {
    GTEST_SKIP() << "UCX is not in this build";
  }
  std::atomic<bool> freed{false};
  const auto body = [&](Communicator& comm, LocalControl&) {
    const TimePoint deadline = Clock::real().now() + seconds(20);
    if (comm.rank() == 0) {
      auto model = std::make_unique<std::vector<double>>(100'000, 1.0);
      PartialReducer reducer(comm, {.group_size = 2, .timeout = seconds(0.3)});
      expect_error(ErrorCode::kTimeout, "", [&] { reducer.average(*model, 0); });
      EXPECT_THAT(*model, Each(1.0));
      model.reset();
      freed = true;
      freed.notify_one();
      comm.barrier({.timeout = seconds(20)}).wait();
      return;
    }
    // In the group, and not there; then all of its part comes.
    const GroupOutcome outcome = comm.control()->ready(0, note_of(2), deadline);
    freed.wait(false);
    if (outcome.kind == GroupOutcome::kGroup) {
      const Group group(outcome.members, outcome.tag);
      std::vector<double> own(100'000, 2.0), average(own.size());
      Request late = comm.all_reduce(std::as_const(own), average, ReduceOp::kAverage,
                                     {.group = &group, .timeout = seconds(0.1)});
      EXPECT_THROW(late.wait(), Error);
    }
    comm.barrier({.timeout = seconds(20)}).wait();
    comm.control()->leave(deadline);
  };
  run(2, body, seconds(20), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Transports, PartialReduceMemory, testing::Values("inproc", "shm", "ucx"));

// Partial scenario 26: no port is looked for and then bound: many at once all get one of the
// kernel's.
TEST(Control, PartialScenario26ManyControllersListenAtOnce) {
  constexpr std::size_t kMany = 16;
  std::vector<std::string> addresses(kMany);
  std::vector<std::unique_ptr<ControllerServer>> servers(kMany);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kMany; ++i) {
    threads.emplace_back([&, i] {
      servers[i] = std::make_unique<ControllerServer>(ControllerOptions{.size = 1, .token = "t"});
      addresses[i] = servers[i]->address();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<std::string>(addresses.begin(), addresses.end()).size(), kMany);
}

// What comes of attempts that were given up is thrown away with the next average, and does not add
// up. Sanitizers have their own malloc, and these bytes are 0 under them.
TEST(PartialReduce, PartialScenario35MessagesOfAbortedAttemptsLeaveNothingBehind) {
  constexpr int kAttempts = 300;
  std::atomic<std::size_t> early{0}, late{0};
  run(2, [&](Communicator& comm, LocalControl&) {
    PartialReducer reducer(comm, {.group_size = 2});
    std::vector<float> model(25'000), average(model.size());
    for (int step = 1; step <= kAttempts; ++step) {
      ASSERT_THAT(reducer.average(model, step).group, ElementsAre(0, 1));
      if (comm.rank() == 0) {  // a second attempt of that group, in which the other has no part
        const GroupTag tag{.id = GroupTag::kControllerBit | static_cast<std::uint64_t>(step),
                           .epoch = 1,
                           .attempt = 1};
        const Group group({0, 1}, tag);
        Request request = comm.all_reduce(std::as_const(model), average, ReduceOp::kAverage,
                                          {.group = &group, .algorithm = "direct"});
        request.cancel();
      }
      comm.barrier().wait();
      if (comm.rank() == 0 && step == kAttempts / 3) early = mallinfo2().uordblks;
      if (comm.rank() == 0 && step == kAttempts) late = mallinfo2().uordblks;
    }
  });
  EXPECT_LT(late, early + (1 << 20));  // without that they are 9 MB
}

}  // namespace
}  // namespace motley::test
