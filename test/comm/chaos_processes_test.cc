// Chaos among real processes: in 50 seeded runs over shared memory and UCX one of them is killed,
// stopped, or stopped and let go on, at a random moment of a stream of collectives. The others end
// in time with an error that names it, or with right results where it went on; no buffer is written
// to after its call has failed.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <random>
#include <vector>

#include "comm/communicator.h"
#include "comm/error.h"
#include "test/comm/forked.h"

namespace motley::test {
namespace {

constexpr Duration kTimeout = seconds(10);
constexpr Duration kLease = seconds(1);
constexpr Duration kBusy = seconds(0.8);  // what a run without an error takes
constexpr float kCanary = -77;

enum class Fault { kKill, kStop, kDelay };

struct Plan {
  Plan(std::uint64_t seed, std::string transport_) : transport(std::move(transport_)) {
    std::mt19937_64 random(seed);
    ranks = 2 + static_cast<int>(random() % 3);
    victim = static_cast<int>(random() % static_cast<unsigned>(ranks));
    fault = static_cast<Fault>(random() % 3);
    after = std::chrono::microseconds(random() % 200'000);
    count = 1 + random() % 200'000;
  }
  std::string transport;
  int ranks;
  int victim;
  Fault fault;
  Duration after;
  std::size_t count;
};

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

// Calls until kBusy has passed on some rank; all see it in the same call.
void work(Communicator& comm, std::vector<float>& data, std::size_t count) {
  const TimePoint end = comm.clock().now() + kBusy;
  for (bool go_on = true; go_on;) {
    data.assign(count, static_cast<float>(comm.rank() + 1));
    comm.all_reduce(data, ReduceOp::kSum).wait();
    const int p = comm.size();
    const auto sum = static_cast<float>(p * (p + 1) / 2);
    require(std::ranges::count(data, sum) == std::ssize(data), "a wrong sum");
    std::vector<int> over(1, comm.clock().now() > end ? 1 : 0);
    comm.all_reduce(over, ReduceOp::kMax).wait();
    go_on = over[0] == 0;
  }
}

// What each rank does and expects. Throws if it is not as it should be.
void live(const Plan& plan, int rank, const std::string& controller, int ready) {
  Options options;
  options.rank = rank;
  options.size = plan.ranks;
  options.controller = controller;
  options.token = "chaos";
  options.transport = plan.transport;
  options.timeout = kTimeout;
  options.heartbeat = seconds(0.1);
  options.lease = kLease;
  Communicator comm = Communicator::join(options);
  require(write(ready, "", 1) == 1, "cannot tell that this rank has joined");
  std::vector<float> data;
  try {
    work(comm, data, plan.count);
    require(plan.fault == Fault::kDelay, "no error, but a rank was killed or stopped");
  } catch (const Error& error) {
    const std::string what = error.what();
    require(plan.fault != Fault::kDelay, "an error, but the rank went on: " + what);
    require(error.code() == ErrorCode::kPeerLost || error.code() == ErrorCode::kTimeout, what);
    require(error.ranks() == std::vector{plan.victim}, "another rank is blamed: " + what);
    std::fill(data.begin(), data.end(), kCanary);
    // The other survivors still talk to this one while it sees that nothing is written any more.
    const TimePoint until = comm.clock().now() + seconds(0.1);
    while (comm.clock().now() < until) {
      require(std::ranges::count(data, kCanary) == std::ssize(data), "written to after the end");
    }
  }
}

void run(const Plan& plan) {
  const ForkedController controller({.size = plan.ranks, .token = "chaos", .lease = kLease});
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  std::vector<std::unique_ptr<Forked>> ranks;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    ranks.push_back(
        std::make_unique<Forked>([&, rank] { live(plan, rank, controller.address(), ready[1]); }));
  }
  close(ready[1]);
  for (int joined = 0; joined < plan.ranks; ++joined) {
    char byte = 0;
    ASSERT_EQ(read(ready[0], &byte, 1), 1) << "only " << joined << " ranks have joined";
  }
  close(ready[0]);
  Clock& clock = Clock::real();
  clock.sleep_until(clock.now() + plan.after);  // the moment of this seed
  Forked& victim = *ranks[static_cast<std::size_t>(plan.victim)];
  victim.signal(plan.fault == Fault::kKill ? SIGKILL : SIGSTOP);
  if (plan.fault == Fault::kDelay) {
    clock.sleep_until(clock.now() + kLease / 4);
    victim.signal(SIGCONT);
  }
  const TimePoint start = clock.now();
  for (int rank = 0; rank < plan.ranks; ++rank) {
    if (rank == plan.victim && plan.fault != Fault::kDelay) continue;
    EXPECT_EQ(ranks[static_cast<std::size_t>(rank)]->wait(), 0) << "rank " << rank;
  }
  EXPECT_LT(clock.now() - start, kTimeout) << "in time";
}

class ChaosProcesses : public testing::TestWithParam<std::string> {};

TEST_P(ChaosProcesses, EverySurvivorNamesTheRightRank) {
  for (std::uint64_t seed = 1; seed <= 25; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    run(Plan(seed, GetParam()));
  }
}

// Joins, or fails to as a rank may that lacks another or, while time is short, has not yet heard of
// the controller. `patience`: how long it tries. Only a
// library ends it by SIGABRT: an exception that nobody takes ends it by 3.
void join(int rank, const std::string& controller, Duration patience) {
  std::set_terminate([] { std::_Exit(3); });
  Options options;
  options.rank = rank;
  options.size = 3;
  options.controller = controller;
  options.token = "chaos";
  options.transport = "ucx";
  options.heartbeat = seconds(0.1);
  options.lease = kLease;
  options.join_timeout = patience;
  try {
    const Communicator comm = Communicator::join(options);
  } catch (const Error& error) {
    const bool expected =
        error.code() == ErrorCode::kPeerLost || error.code() == ErrorCode::kTimeout;
    const bool hears_nothing =
        std::string(error.what()).find("the controller did not answer in time") !=
        std::string::npos;
    require(expected && (hears_nothing || !error.ranks().empty()), error.what());
  }
}

// A join that fails at any moment, in 50 runs: one of three ranks is killed, or gives up, while
// they connect by UCX. All others end with an error that names a rank, or have joined before. But
// UCX 1.13 asserts that a connection over TCP does not break while its first message is sent
// (wireup_ep.c:241), and aborts the process: seen in 2 of 50 runs.
TEST(ChaosJoins, AJoinThatFailsEndsInErrors) {
  int aborted = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const int victim = static_cast<int>(random() % 3);
    const bool is_killed = random() % 2 == 0;
    const Duration after = std::chrono::microseconds(20'000 + random() % 150'000);
    const ForkedController controller({.size = 3, .token = "chaos", .lease = kLease});
    std::vector<std::unique_ptr<Forked>> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      const bool gives_up = rank == victim && !is_killed;
      ranks.push_back(std::make_unique<Forked>(
          [&, rank] { join(rank, controller.address(), gives_up ? after : seconds(3)); }));
    }
    if (is_killed) {
      Clock::real().sleep_until(Clock::real().now() + after);  // the moment of this seed
      ranks[static_cast<std::size_t>(victim)]->signal(SIGKILL);
    }
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim && is_killed) continue;
      const int ending = ranks[static_cast<std::size_t>(rank)]->wait();
      if (WIFSIGNALED(ending) && WTERMSIG(ending) == SIGABRT) {
        ++aborted;
      } else {
        EXPECT_EQ(ending, 0) << "rank " << rank;
      }
    }
  }
  EXPECT_LE(aborted, 10) << "by UCX";
}

INSTANTIATE_TEST_SUITE_P(Transports, ChaosProcesses, testing::Values("shm", "ucx"),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace motley::test
