// 2,048 simulated ranks run a real ring all-reduce, with production's schedule, executor and
// matcher, in one thread: 8.4 million messages in under 10 s. What is bounded is the time of the
// processor, which is the real time where nothing else runs.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <memory>
#include <vector>

#include "comm/executor/engine.h"
#include "comm/transport/sim.h"

namespace motley {
namespace {

struct Rank {
  std::unique_ptr<Engine> engine;
  std::vector<std::int32_t> data;
  Request request;
};

// Runs the ring over `size` ranks with one element a chunk, checks the sums, and returns the
// seconds that the messages took in virtual time.
double run_ring(int size) {
  SimNetwork network({.topology = Topology::uniform(size)});
  const Group world = Group::world(size);
  std::vector<Rank> ranks(static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r) {
    Rank& rank = ranks[static_cast<std::size_t>(r)];
    rank.engine = std::make_unique<Engine>(network.transport(r), network.clock());
    for (int i = 0; i < size; ++i) rank.data.push_back(r + i);
  }
  for (Rank& rank : ranks) {
    Call call{.kind = CallKind::kAllReduce, .group = &world, .in = rank.data, .out = rank.data};
    call.algorithm = 1;  // ring
    call.deadline = TimePoint(seconds(1'000));
    rank.request = rank.engine->start(call);
  }
  while (network.step()) {
  }
  const std::int64_t messages = std::int64_t{size} * 2 * (size - 1);
  EXPECT_EQ(network.messages(), static_cast<std::uint64_t>(messages));
  for (Rank& rank : ranks) {
    EXPECT_TRUE(rank.request.test());
    for (int i = 0; i < size; ++i) {
      const int sum = size * (size - 1) / 2 + i * size;
      if (rank.data[static_cast<std::size_t>(i)] != sum) {
        ADD_FAILURE() << "element " << i << ": " << rank.data[static_cast<std::size_t>(i)]
                      << ", not " << sum;
        return 0;
      }
    }
  }
  return to_seconds(network.clock().now().time_since_epoch());
}

// Each of the 2(p - 1) rounds takes a latency of 20 us and the transfer of 4 bytes at 1.25 GB/s.
TEST(SimScale, SmallRingTakesTheTimeOfItsRounds) {
  for (const int size : {1, 2, 3, 64}) {
    EXPECT_NEAR(run_ring(size), 2 * (size - 1) * 20.003e-6, 1e-9 * 2 * size) << size;
  }
}

TEST(SimScale, RingOf2048RanksRunsInTenSeconds) {
  const auto start = std::chrono::steady_clock::now();
  const std::clock_t cpu_start = std::clock();
  const double virtual_seconds = run_ring(2048);
  const std::chrono::duration<double> real = std::chrono::steady_clock::now() - start;
  const double cpu = static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
  std::printf("2048 ranks, 8384512 messages: %.2f s (%.2f s of a processor), %.4f s simulated\n",
              real.count(), cpu, virtual_seconds);
  EXPECT_LT(cpu, 10);
}

}  // namespace
}  // namespace motley
