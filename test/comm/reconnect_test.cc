// Scenario 31: ranks leave in any order, each in good order, and a job with the same ranks at the
// same place begins at once. Nobody is taken for dead, nobody waits for who has left. One that an
// exception ends has not left in good order, and the others are told at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "comm/communicator.h"
#include "comm/control/client.h"
#include "comm/controller.h"
#include "comm/error.h"
#include "test/support/rank_runner.h"

namespace motley {
namespace {

constexpr int kRanks = 3;

// Whose turn it is to leave.
class Turns {
 public:
  void wait(int turn) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return next_ == turn; });
  }
  void end() {
    {
      const std::lock_guard lock(mutex_);
      ++next_;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int next_ = 0;
};

// One job. Rank r leaves as the turn_of[r]-th.
void run_job(const std::string& bind, std::string& address, const std::string& transport,
             const std::array<int, kRanks>& turn_of) {
  ControllerServer controller({.bind = bind, .size = kRanks, .token = "secret"});
  address = controller.address();
  Turns turns;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      Options options;
      options.rank = rank;
      options.size = kRanks;
      options.controller = controller.address();
      options.token = "secret";
      options.transport = transport;
      auto comm = std::make_unique<Communicator>(Communicator::join(options));
      std::vector<std::int64_t> data(20'000, rank + 1);
      comm->all_reduce(data, ReduceOp::kSum).wait();
      EXPECT_THAT(data, testing::Each(6));
      turns.wait(turn_of[static_cast<std::size_t>(rank)]);
      EXPECT_THAT(comm->control()->lost_ranks(), testing::IsEmpty()) << "rank " << rank;
      comm.reset();
      turns.end();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  controller.wait_until_left();
}

// The lease is long, so only the rank itself can have told.
TEST(Leaving, ByAnExceptionIsADeathThatOthersAreToldOf) {
  const ControllerServer controller({.size = kRanks, .token = "secret", .lease = seconds(60)});
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      Options options;
      options.rank = rank;
      options.size = kRanks;
      options.controller = controller.address();
      options.token = "secret";
      try {
        Communicator comm = Communicator::join(options);
        if (rank == 1) return;  // in good order
        if (rank == 2) throw std::runtime_error("a step that cannot be made");
        comm.control()->get_from_living("never set", Clock::real().now() + seconds(20));
        ADD_FAILURE() << "nobody has set it";
      } catch (const Error& error) {
        EXPECT_EQ(rank, 0) << error.what();
        EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
        EXPECT_THAT(error.ranks(), testing::ElementsAre(2)) << error.what();
        EXPECT_THAT(error.what(), testing::HasSubstr("an exception ended its work"));
      } catch (const std::runtime_error&) {
        EXPECT_EQ(rank, 2);
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

class Reconnect : public testing::TestWithParam<std::string> {};

TEST_P(Reconnect, Scenario31LeaveInAnyOrderAndComeBackAtOnce) {
  std::array<int, kRanks> turns = {0, 1, 2};
  std::string address = "tcp://127.0.0.1:0";
  do {
    SCOPED_TRACE(testing::PrintToString(turns));
    const std::string bind = address;  // after the first job: the same port
    run_job(bind, address, GetParam(), turns);
    EXPECT_TRUE(bind.ends_with(":0") || address == bind) << address;
  } while (std::next_permutation(turns.begin(), turns.end()));
}

std::vector<std::string> between_processes() {
  std::vector<std::string> names = test::transports();
  std::erase(names, "sim");
  std::erase(names, "inproc");
  return names;
}

INSTANTIATE_TEST_SUITE_P(Transports, Reconnect, testing::ValuesIn(between_processes()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace motley
