// Ranks of a job find each other through a controller over ZeroMQ, here on 127.0.0.1, and connect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "comm/communicator.h"
#include "comm/controller.h"
#include "comm/error.h"

namespace motley {
namespace {

Options options_of(int rank, int size, const ControllerServer& controller) {
  Options options;
  options.rank = rank;
  options.size = size;
  options.controller = controller.address();
  options.token = "secret";
  return options;
}

class Join : public testing::TestWithParam<std::string> {};

TEST_P(Join, RanksMeetAndReduce) {
  const int size = 4;
  const ControllerServer controller({.size = size, .token = "secret"});
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      Options options = options_of(rank, size, controller);
      options.transport = GetParam();
      Communicator comm = Communicator::join(options);
      std::vector<std::int64_t> data(100'000, rank);
      comm.all_reduce(data, ReduceOp::kSum).wait();
      EXPECT_THAT(data, testing::Each(6));
      comm.barrier().wait();
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

INSTANTIATE_TEST_SUITE_P(Transports, Join, testing::Values("auto", "shm"));

TEST(JoinErrors, TheMissingRanksAreNamed) {
  const ControllerServer controller({.size = 3, .token = "secret"});
  Options options = options_of(1, 3, controller);
  options.join_timeout = seconds(1.5);  // enough to reach the controller on a loaded machine
  try {
    Communicator::join(options);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout) << error.what();
    EXPECT_THAT(error.ranks(), testing::ElementsAre(0, 2)) << error.what();
  }
}

// It says why before it goes, so that the others need not wait for join_timeout.
TEST(JoinErrors, ARankThatCannotJoinTellsTheOthers) {
  const ControllerServer controller({.size = 2, .token = "secret"});
  std::thread bad([&] {
    Options options = options_of(1, 2, controller);
    options.transport = "smoke signals";
    EXPECT_THROW(Communicator::join(options), Error);
  });
  Options options = options_of(0, 2, controller);
  options.transport = "shm";
  try {
    Communicator::join(options);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeerLost) << error.what();
    EXPECT_THAT(error.ranks(), testing::ElementsAre(1)) << error.what();
    EXPECT_THAT(error.what(), testing::HasSubstr("smoke signals"));
  }
  bad.join();
}

TEST(JoinErrors, AControllerThatIsNotThereIsNamed) {
  Options options;
  options.size = 2;
  options.controller = "tcp://127.0.0.1:1";
  options.join_timeout = seconds(0.2);
  try {
    Communicator::join(options);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("127.0.0.1:1"));
  }
}

TEST(JoinErrors, SeveralRanksNeedAController) {
  Options options;
  options.size = 2;
  EXPECT_THROW(Communicator::join(options), Error);
  options.rank = 5;
  EXPECT_THROW(Communicator::join(options), Error);
}

TEST(JoinAlone, OneRankNeedsNobody) {
  Communicator comm = Communicator::join(Options{});
  std::vector<float> data(3, 2);
  comm.all_reduce(data, ReduceOp::kAverage).wait();
  EXPECT_THAT(data, testing::Each(2));
}

}  // namespace
}  // namespace motley
