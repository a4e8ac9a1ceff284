// What ranks that share cores cost each other is found again from the times of calls that it
// prices, and the price of other calls with it.
#include "comm/topology/crowd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "comm/algorithm/cost.h"
#include "comm/algorithm/families.h"

namespace motley {
namespace {

constexpr std::size_t kSegment = 128 << 10;

Topology crowded(int ranks, int cores, const TopologyCosts& costs) {
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return Topology({{.ranks = all, .cores = cores}}, costs);
}

double price(int algorithm, std::size_t bytes, const Topology& topology) {
  const auto& family = algorithms_of(CallKind::kAllReduce)[static_cast<std::size_t>(algorithm)];
  return static_cast<double>(
      cost(family, {.kind = CallKind::kAllReduce, .bytes = bytes, .segment_bytes = kSegment},
           topology)
          .count());
}

struct Crowd {
  int ranks;
  int cores;
  int turn;  // ns
};

class Crowds : public testing::TestWithParam<Crowd> {};

TEST_P(Crowds, ArePricedAsTheirCallsSay) {
  const auto [ranks, cores, turn] = GetParam();
  const TopologyCosts truth{.within = {Duration(400), 6e9, Duration(150)},
                            .copy_bytes_per_second = 2e10,
                            .per_call = Duration(300),
                            .per_turn = Duration(turn)};
  const Topology real = crowded(ranks, cores, truth);
  std::vector<CallTime> times;
  for (const std::size_t bytes : {std::size_t{64}, std::size_t{256} << 10}) {
    for (const char* family : {"direct", "ring", "halving_doubling", "tree"}) {
      const int algorithm = find_algorithm(CallKind::kAllReduce, family);
      times.push_back({algorithm, bytes, price(algorithm, bytes, real)});
    }
  }
  TopologyCosts begin = truth;  // as one exchange of two ranks may have it
  begin.within = {Duration(1'500), 2e9, Duration(60)};
  begin.per_turn = {};
  const Topology found = crowded(ranks, cores, fit_crowd(begin, ranks, cores, times, kSegment));
  for (const std::size_t bytes : {4, 1'024, 65'536, 1 << 20}) {
    for (const char* family : {"direct", "ring", "halving_doubling", "tree"}) {
      const int algorithm = find_algorithm(CallKind::kAllReduce, family);
      const double due = price(algorithm, bytes, real);
      EXPECT_NEAR(price(algorithm, bytes, found), due, 0.15 * due)
          << family << ", " << bytes << " bytes\n"
          << found.to_text();
    }
  }
}

// Turns that cost nothing, and that cost most. 3 on 2: some ranks share a core, and not always the
// same. 16: the most that are priced so.
INSTANTIATE_TEST_SUITE_P(Turns, Crowds,
                         testing::Values(Crowd{3, 2, 900}, Crowd{4, 2, 0}, Crowd{8, 2, 1'500},
                                         Crowd{8, 1, 4'000}, Crowd{16, 4, 1'500}),
                         [](const auto& tested) {
                           return std::to_string(tested.param.ranks) + "_on_" +
                                  std::to_string(tested.param.cores);
                         });

}  // namespace
}  // namespace motley
