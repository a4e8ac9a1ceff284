// What a rank learns when a call does not end: who is behind, in which call, since when, and what
// every rank completed last; as an error (scenario 8), and on a signal without stopping. The calls
// of all ranks in a file (scenario 9): call_dump_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <future>

#include "comm/communicator.h"
#include "comm/error.h"
#include "comm/local.h"
#include "comm/status_signal.h"
#include "test/support/late_rank.h"

namespace motley {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

// Four ranks in a ring: rank 2 does not come to the third call. All others name it, not only the
// one that waits for its message.
TEST(Timeout, Scenario8NamesTheRankThatIsBehind) {
  Options options;
  options.timeout = seconds(1.5);
  test::run_with_a_late_rank(2, options, [](Communicator& comm, const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout) << error.what();
    EXPECT_THAT(error.ranks(), ElementsAre(2)) << error.what();
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("rank " + std::to_string(comm.rank()) + " of 4: "),
                      HasSubstr("all_reduce #2 (ring, 1000 float32)"), HasSubstr("1.5 s"),
                      HasSubstr("bytes have arrived"),
                      HasSubstr("Rank 2 has not begun it: in no call since barrier #1 ended"),
                      HasSubstr("Last completed: barrier #1 by ranks 0, 1, 2, 3")));
  });
}

// The recorder of each rank has its last calls in order, and the signal's text has them, too.
TEST(Status, IsToldOnASignalWithoutStopping) {
  run_local(2, [](Communicator& comm) {
    std::vector<float> data(64, 1);
    for (int i = 0; i < 5; ++i) comm.all_reduce(data, ReduceOp::kSum).wait();
    const auto calls = comm.recorder().last(5);
    ASSERT_EQ(calls.size(), 5u);
    for (std::uint32_t i = 0; i < 5; ++i) {
      EXPECT_EQ(calls[i].number, i);
      EXPECT_EQ(calls[i].state, CallRecord::kDone);
      EXPECT_EQ(calls[i].count, 64u);
      EXPECT_GE(calls[i].ended, calls[i].started);
    }
    if (comm.rank() == 0) {
      std::promise<std::string> printed;
      bool first = true;
      StatusSignal status(comm, [&](const std::string& text) {
        if (std::exchange(first, false)) printed.set_value(text);
      });
      EXPECT_THROW(StatusSignal(comm, [](const std::string&) {}), Error);
      std::raise(SIGUSR1);
      const std::string text = printed.get_future().get();
      EXPECT_THAT(text, AllOf(HasSubstr("rank 0 of 2"), HasSubstr("all_reduce #4"),
                              HasSubstr("done"), HasSubstr("Rank 1 ")));
    }
    comm.all_reduce(data, ReduceOp::kSum).wait();  // goes on
  });
}

}  // namespace
}  // namespace motley
