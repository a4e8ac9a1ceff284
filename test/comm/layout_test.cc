// Where chunks lie, by numbers alone: buffers far beyond 2^31 elements need no memory here.
#include "comm/executor/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "comm/algorithm/families.h"

namespace motley {
namespace {

constexpr std::size_t kGiga = std::size_t{1} << 30;

// Views of so many elements of memory that is never touched.
View at(std::uintptr_t address, std::size_t count, DType dtype = DType::kInt8) {
  return {std::bit_cast<std::byte*>(address), count, dtype};
}

// Shows that all pieces together cover [0, n) once, in order, in messages of at most `most`.
void expect_cut_exactly(const Layout& layout, int chunks, std::size_t n, std::size_t most) {
  std::size_t end = 0;
  for (std::uint32_t piece = 0; piece < layout.pieces(); ++piece) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const Region region = layout.at(piece, chunk);
      if (region.count == 0) continue;
      ASSERT_EQ(region.where, Region::kOut);
      ASSERT_EQ(region.first, end) << "piece " << piece << ", chunk " << chunk;
      ASSERT_LE(region.count, most);
      end += region.count;
    }
  }
  EXPECT_EQ(end, n);
}

// Scenario 5: more than 2^31 elements of one byte are neither lost nor counted twice.
TEST(Layout, Scenario5CutsABufferOfMoreThan2To31ElementsExactly) {
  for (const std::size_t n : {std::size_t{0}, std::size_t{1}, 3 * kGiga + 17}) {
    const Call call{.kind = CallKind::kAllReduce, .in = at(64, n), .out = at(64, n)};
    const Shape shape{.rank = 2, .size = 7};
    const Schedule schedule = ring_all_reduce(shape);
    const Layout layout(call, shape, schedule, DType::kInt8, 1 << 20);
    expect_cut_exactly(layout, 7, n, 1 << 20);
    EXPECT_EQ(layout.lane_elements(), 0);
  }
}

// Scenario 6: blocks of few elements, whose offsets in bytes exceed 2^31 all the same.
TEST(Layout, Scenario6ReachesBlocksBeyond2GiB) {
  const int p = 2048;
  const std::size_t n = (std::size_t{1} << 20) + 3;  // float64: 16 GiB in all
  const Call call{.kind = CallKind::kAllToAll,
                  .in = at(64, p * n, DType::kFloat64),
                  .out = at(std::uintptr_t{1} << 40, p * n, DType::kFloat64)};
  const Shape shape{.rank = 5, .size = p};
  const Schedule schedule = direct_all_to_all(shape);
  const Layout layout(call, shape, schedule, DType::kFloat64, 128 << 10);
  std::size_t seen = 0;
  for (std::uint32_t piece = 0; piece < layout.pieces(); ++piece) {
    const Region last_in = layout.at(piece, p - 1);
    const Region last_out = layout.at(piece, 2 * p - 1);
    EXPECT_EQ(last_in, (Region{Region::kIn, (p - 1) * n + seen, last_in.count}));
    EXPECT_EQ(last_out, (Region{Region::kOut, (p - 1) * n + seen, last_in.count}));
    EXPECT_LE(last_in.count * 8, std::size_t{128} << 10);
    seen += last_in.count;
  }
  EXPECT_EQ(seen, n);
}

TEST(Layout, WorksOnACopyOfInWhereTheResultGoesThere) {
  const Call call{.kind = CallKind::kAllToAll, .in = at(64, 300), .out = at(64, 300)};
  const Shape shape{.rank = 0, .size = 3};
  const Schedule schedule = direct_all_to_all(shape);
  const Layout layout(call, shape, schedule, DType::kInt8, 64);
  EXPECT_EQ(layout.pieces(), 2u);
  EXPECT_EQ(layout.lane_elements(), 150u);
  EXPECT_EQ(layout.at(1, 2), (Region{Region::kLane, 100, 50}));
  EXPECT_EQ(layout.home(1, {Place::kIn, 2}), (Region{Region::kIn, 250, 50}));
  EXPECT_EQ(layout.at(1, 5), (Region{Region::kOut, 250, 50}));
}

// Three chunks with these shares, and scratch as large as chunks `a` and `b`.
Schedule weighted(std::vector<std::uint32_t> shares, int a, int b) {
  Schedule schedule = Schedule::from_steps(5, {});
  schedule.scratch = 2;
  schedule.scratch_like = [=](int i) { return i == 0 ? a : b; };
  schedule.weights = std::move(shares);
  return schedule;
}

// Scratch is as large as what it is like, apart, and within the lane, in every piece.
void expect_scratch_fits(const Layout& layout, int a, int b) {
  for (std::uint32_t piece = 0; piece < layout.pieces(); ++piece) {
    const Region first = layout.at(piece, 3), second = layout.at(piece, 4);
    ASSERT_EQ(first.count, layout.at(piece, a).count);
    ASSERT_EQ(second.count, layout.at(piece, b).count);
    ASSERT_LE(first.first + first.count, second.first) << "piece " << piece;
    ASSERT_LE(second.first + second.count, layout.lane_elements()) << "piece " << piece;
  }
}

// Shares of 1, 0 and 3 in 4: what rounding takes from one chunk the next has.
TEST(Layout, GivesChunksTheirShares) {
  const Schedule schedule = weighted({1, 0, 3}, 0, 2);
  const Shape shape{.rank = 0, .size = 2};
  const Call call{.kind = CallKind::kAllReduce, .in = at(64, 4'001), .out = at(64, 4'001)};
  const Layout layout(call, shape, schedule, DType::kInt8, 30);
  expect_cut_exactly(layout, 3, 4'001, 31);
  EXPECT_EQ(layout.at(0, 1).count, 0u);
  expect_scratch_fits(layout, 0, 2);
}

// Of 21 elements in two pieces, chunk 1 has 4 of the first 11, but 5 of the other 10.
TEST(Layout, HasRoomForSharesThatRoundUpInShorterPieces) {
  const Schedule schedule = weighted({2, 3, 2}, 1, 1);
  const Shape shape{.rank = 0, .size = 3};
  for (std::size_t n = 0; n < 100; ++n) {
    const Call call{.kind = CallKind::kAllReduce, .in = at(64, n), .out = at(64, n)};
    const Layout layout(call, shape, schedule, DType::kInt8, 5);
    expect_cut_exactly(layout, 3, n, 6);
    expect_scratch_fits(layout, 1, 1);
    if (HasFatalFailure()) return;
  }
}

// Blocks of 100, 0 and 30 elements, cut at every 40th: some have no second or third part.
TEST(Layout, CutsUnequalBlocksAtTheSamePlaces) {
  const Call call{.kind = CallKind::kAllGatherV,
                  .in = at(64, 30),
                  .out = at(1024, 130),
                  .in_counts = {},
                  .out_counts = {100, 0, 30}};
  const Shape shape{.rank = 2, .size = 3};
  const Schedule schedule = Schedule::from_steps(3, {});
  const Layout layout(call, shape, schedule, DType::kInt8, 40);
  EXPECT_EQ(layout.pieces(), 3u);
  EXPECT_EQ(layout.at(2, 0), (Region{Region::kOut, 80, 20}));
  EXPECT_EQ(layout.at(0, 1).count, 0u);
  EXPECT_EQ(layout.at(0, 2), (Region{Region::kOut, 100, 30}));
  EXPECT_EQ(layout.at(1, 2).count, 0u);
  EXPECT_EQ(layout.total(0), 100u);
}

}  // namespace
}  // namespace motley
