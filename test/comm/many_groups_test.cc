// Scenario 28: a hundred thousand different groups cost nothing after their last call: no memory,
// no descriptors.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <random>

#include "comm/communicator.h"
#include "comm/transport/inproc.h"

namespace motley {
namespace {

std::size_t resident_bytes() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * 4096;
}

std::ptrdiff_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return std::distance(begin(files), end(files));
}

// One thread drives eight ranks, so that nothing but the calls costs anything.
class World {
 public:
  World() {
    for (int rank = 0; rank < kRanks; ++rank)
      ranks_.emplace_back(network_.transport(rank), Clock::real(), Options{});
  }

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

TEST(ManyGroups, Scenario28CostNothingAfterTheirLastCall) {
  World world;
  world.run(5'000);
  const std::size_t bytes = resident_bytes();
  const std::ptrdiff_t files = open_files();
  world.run(95'000);
  EXPECT_LE(resident_bytes(), bytes + (std::size_t{1} << 20));
  EXPECT_EQ(open_files(), files);
}

}  // namespace
}  // namespace motley
