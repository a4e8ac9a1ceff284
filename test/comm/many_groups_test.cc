// Scenario 28: a hundred thousand different groups cost nothing after their last call: no memory,
// no descriptors, no threads; and the last ones are as much work as the first, as not one block of
// memory is kept in which to look for a group: what does not grow is no slower to search.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <numeric>
#include <random>

#include "comm/communicator.h"
#include "comm/transport/inproc.h"
#include "test/support/heap_count.h"
#include "test/support/usage.h"

namespace motley {
namespace {

// One thread drives eight ranks, so that nothing but the calls costs anything.
class World {
 public:
  World() {
    Options options;
    options.progress_thread = false;
    for (int rank = 0; rank < kRanks; ++rank)
      ranks_.emplace_back(network_.transport(rank), Clock::real(), options);
  }

  // What follows has the same members as after any other call of this.
  void draw_again() { random_.seed(1); }

  // Sums on as many groups as said, each of 2 to 8 ranks in any order, with an id of its own.
  void run(int groups) {
    for (int i = 0; i < groups; ++i) {
      std::vector<int> members(kRanks);
      std::iota(members.begin(), members.end(), 0);
      std::shuffle(members.begin(), members.end(), random_);
      members.resize(2 + random_() % (kRanks - 1));
      expect_sum(members);
    }
  }

 private:
  static constexpr int kRanks = 8;

  void expect_sum(const std::vector<int>& members) {
    ++id_;
    std::vector<Group> groups(members.size(), Group(members, {.id = id_}));  // each rank its own
    std::vector<std::vector<std::int32_t>> data;
    std::vector<Request> requests;
    for (const int rank : members) data.emplace_back(3, rank);
    for (std::size_t i = 0; i < members.size(); ++i) {
      requests.push_back(ranks_[static_cast<std::size_t>(members[i])].all_reduce(
          data[i], ReduceOp::kSum, {.group = &groups[i]}));
    }
    for (std::size_t done = 0; done < requests.size();) {
      done = 0;
      for (Request& request : requests) done += request.test() ? 1 : 0;
    }
    const int sum = std::accumulate(members.begin(), members.end(), 0);
    for (const auto& result : data) ASSERT_EQ(result, std::vector<std::int32_t>(3, sum));
  }

  InprocNetwork network_{kRanks};
  std::vector<Communicator> ranks_;
  std::mt19937_64 random_{1};
  std::uint64_t id_ = 0;
};

struct Cost {
  std::uint64_t allocations;
  double us;              // per group; printed, as a machine has other things to do
  test::HeapCount after;  // whoever has them
};

Cost cost_of_a_thousand(World& world) {
  constexpr int kGroups = 1'000;
  world.draw_again();
  const test::HeapCount before = test::heap_count();
  const auto start = std::chrono::steady_clock::now();
  world.run(kGroups);
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
  const test::HeapCount after = test::heap_count();
  return {after.allocations - before.allocations, time.count() / kGroups, after};
}

// Fewer than a thousandth of the groups: tables that all share may still grow a little.
constexpr std::int64_t kBlocksForAll = 20;

TEST(ManyGroups, Scenario28CostNothingAfterTheirLastCall) {
  World world;
  world.run(5'000);
  const std::size_t resident = test::resident_bytes();
  const std::ptrdiff_t files = test::open_files();
  const std::ptrdiff_t threads = test::threads();
  const Cost first = cost_of_a_thousand(world);
  world.run(93'000);
  const Cost last = cost_of_a_thousand(world);
  EXPECT_LE(test::resident_bytes(), resident + (std::size_t{1} << 20));
  EXPECT_EQ(test::open_files(), files);
  EXPECT_EQ(test::threads(), threads);
  std::printf("a group after 5,000 others: %.1f us, after 99,000: %.1f us\n", first.us, last.us);
  EXPECT_GT(first.allocations, 1'000u);
  EXPECT_LE(last.allocations, first.allocations + first.allocations / 100);
  EXPECT_GT(first.after.blocks, 0);
  EXPECT_LE(last.after.blocks, first.after.blocks + kBlocksForAll);
  EXPECT_LE(last.after.bytes, first.after.bytes + 1'000 * kBlocksForAll);
}

}  // namespace
}  // namespace motley
