// All-to-all brings every block to its owner, on every transport with the same test body.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "comm/algorithm/families.h"
#include "comm/communicator.h"
#include "test/support/rank_runner.h"

namespace motley {
namespace {

using test::run_ranks_on;
using testing::Combine;
using testing::Each;
using testing::Values;
using testing::ValuesIn;

std::vector<std::string> families() {
  std::vector<std::string> names;
  for (const Algorithm& family : algorithms_of(CallKind::kAllToAll)) names.push_back(family.name);
  return names;
}

// The n elements that `from` has for `to`: all different.
std::vector<std::int32_t> block(int from, int to, std::size_t n) {
  std::vector<std::int32_t> data(n);
  std::iota(data.begin(), data.end(), (from * 16 + to) << 20);
  return data;
}

// Blocks one after another: of `rank` for all, or of all for `rank`.
std::vector<std::int32_t> sent_by(int rank, int ranks, std::size_t n) {
  std::vector<std::int32_t> all;
  for (int to = 0; to < ranks; ++to) {
    const auto data = block(rank, to, n);
    all.insert(all.end(), data.begin(), data.end());
  }
  return all;
}
std::vector<std::int32_t> due_to(int rank, int ranks, std::size_t n) {
  std::vector<std::int32_t> all;
  for (int from = 0; from < ranks; ++from) {
    const auto data = block(from, rank, n);
    all.insert(all.end(), data.begin(), data.end());
  }
  return all;
}

class AllToAll
    : public testing::TestWithParam<std::tuple<std::string, std::string, int, std::size_t>> {};

TEST_P(AllToAll, BringsEveryBlockToItsOwner) {
  const auto& [transport, algorithm, ranks, n] = GetParam();
  std::vector<int> right(static_cast<std::size_t>(ranks));
  run_ranks_on(transport, ranks, [&, ranks = ranks, n = n, algorithm = algorithm](auto& comm) {
    const std::vector<std::int32_t> in = sent_by(comm.rank(), ranks, n);
    std::vector<std::int32_t> out(in.size(), -1);
    comm.all_to_all(in, out, {.algorithm = algorithm}).wait();
    std::vector<std::int32_t> data = in;
    comm.all_to_all(data, data, {.algorithm = algorithm}).wait();
    const auto due = due_to(comm.rank(), ranks, n);
    right[static_cast<std::size_t>(comm.rank())] =
        in == sent_by(comm.rank(), ranks, n) && out == due && data == due;
  });
  EXPECT_THAT(right, Each(1));
}

// 1 rank: a copy. 3, 7: not powers of two. 70,001: several pieces, the last one ragged.
INSTANTIATE_TEST_SUITE_P(Sizes, AllToAll,
                         Combine(ValuesIn(test::transports()), ValuesIn(families()),
                                 Values(1, 2, 3, 4, 7, 8), Values(0, 1, 7, 4097, 70'001)),
                         [](const auto& sizes) {
                           return std::get<0>(sizes.param) + "_" + std::get<1>(sizes.param) + "_" +
                                  std::to_string(std::get<2>(sizes.param)) + "_ranks_" +
                                  std::to_string(std::get<3>(sizes.param));
                         });

}  // namespace
}  // namespace motley
