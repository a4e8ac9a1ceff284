// Chaos among real processes: in 50 seeded runs over shared memory and UCX one of them is killed,
// stopped, or stopped and let go on, at a random moment of a stream of collectives. The others end
// in time with an error that names it, or with right results where it went on; no buffer is written
// to after its call has failed.
#include <gtest/gtest.h>

#include <algorithm>
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

INSTANTIATE_TEST_SUITE_P(Transports, ChaosProcesses, testing::Values("shm", "ucx"),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace motley::test
