// Scenario 23: more ranks than cores. Who waits must not keep a core from who is still to come: it
// goes to sleep, whatever it waits for.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "test/support/rank_runner.h"

namespace motley {
namespace {

constexpr int kRanks = 8;

// 'R' while a thread runs or could, 'S' while it sleeps.
char state_of(int thread) {
  std::ifstream file(fmt::format("/proc/self/task/{}/stat", thread));
  std::string text;
  std::getline(file, text);
  const auto name_end = text.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= text.size() ? '?' : text[name_end + 2];
}

// How often a thread went to sleep by itself.
long sleeps_of(int thread) {
  std::ifstream file(fmt::format("/proc/self/task/{}/status", thread));
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("voluntary_ctxt_switches:")) return std::stol(line.substr(24));
  }
  return -1;
}

class Oversubscribed : public testing::TestWithParam<std::string> {};

// Seven ranks wait for the last, again and again, which comes only once it sees all of them asleep.
TEST_P(Oversubscribed, Scenario23WhoWaitsSleeps) {
  std::atomic<int> threads[kRanks] = {};
  test::run_ranks_on(GetParam(), kRanks, [&](Communicator& comm) {
    const auto me = static_cast<std::size_t>(comm.rank());
    threads[me] = gettid();
    const long before = sleeps_of(gettid());
    constexpr int kCalls = 20;
    for (int call = 0; call < kCalls; ++call) {
      std::vector<float> one = {1};
      if (me == 0) {
        for (int other = 1; other < kRanks;) {
          const int thread = threads[static_cast<std::size_t>(other)];
          if (thread != 0 && state_of(thread) == 'S') ++other;
        }
      }
      comm.all_reduce(one, ReduceOp::kSum).wait();
      ASSERT_EQ(one[0], 8);
    }
    EXPECT_GE(sleeps_of(gettid()) - before, me == 0 ? 0 : kCalls / 2);
  });
}

std::vector<int> allowed_cores() {
  cpu_set_t set;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

class SharedCore : public testing::TestWithParam<int> {};

// The kernel may put two ranks on one core though there is another, or leave one alone on a core
// and crowd the others. If they slept it would leave them there; while they want their cores, it
// sees that there is one too few.
TEST_P(SharedCore, IsHandedOverWithoutSleeping) {
  const std::vector<int> cores = allowed_cores();
  if (cores.size() < 2) GTEST_SKIP() << "one core: ranks always share it";
  test::run_ranks_on("shm", GetParam(), [&](Communicator& comm) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cores[static_cast<std::size_t>(comm.rank()) / 2], &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    const auto call = [&] {
      std::vector<int> data = {1};
      comm.all_reduce(data, ReduceOp::kSum).wait();
      ASSERT_EQ(data[0], comm.size());
    };
    call();  // all are there, and say so
    constexpr int kCalls = 200;
    long least = kCalls;  // of several rounds: others may want the cores, too
    for (int round = 0; round < 10; ++round) {
      const long before = sleeps_of(gettid());
      for (int i = 0; i < kCalls; ++i) call();
      least = std::min(least, sleeps_of(gettid()) - before);
    }
    EXPECT_LT(least, kCalls / 10) << "in " << kCalls << " calls";
  });
}
// 2: both on one core. 3: the third has another to itself.
INSTANTIATE_TEST_SUITE_P(Ranks, SharedCore, testing::Values(2, 3));

std::vector<std::string> real_transports() {
  std::vector<std::string> names = test::transports();
  std::erase(names, "sim");  // there nobody waits
  return names;
}

INSTANTIATE_TEST_SUITE_P(Transports, Oversubscribed, testing::ValuesIn(real_transports()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace motley
