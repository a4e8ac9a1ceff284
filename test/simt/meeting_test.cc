// Threads that meet in blocks and warps, against what plain loops give: on a device, or in the
// emulator, which so does what a device does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

#include "comm/error.h"
#include "test/simt/meeting_kernels.h"

namespace motley::test {
namespace {

using testing::ElementsAre;

// [n] elements in device memory.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(std::vector<T> values)
      : values_(std::move(values)), buffer_(values_.size() * sizeof(T)) {
    move(bytes_of_buffer(), bytes_of_values());
  }

  T* data() const { return reinterpret_cast<T*>(bytes_of_buffer().data); }
  const std::vector<T>& read() {
    move(bytes_of_values(), bytes_of_buffer());
    return values_;
  }

 private:
  static void move(View out, ConstView in) {
    copy(out, in, {});
    synchronize({});
  }
  View bytes_of_buffer() const { return buffer_.view(buffer_.size_bytes(), DType::kInt8); }
  View bytes_of_values() {
    return {reinterpret_cast<std::byte*>(values_.data()), buffer_.size_bytes(), DType::kInt8};
  }

  std::vector<T> values_;
  DeviceBuffer buffer_;
};

class SimtOnDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count() == 0) GTEST_SKIP() << "no GPU, or no CUDA in this build";
  }
};

// Whole numbers, so that the sum is exact in any order.
std::vector<float> small_numbers(std::size_t n) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i % 7);
  return values;
}

TEST_F(SimtOnDevice, AddsAMillionFloatsIn64BlocksOf256Threads) {
  const std::vector<float> in = small_numbers(1 << 20);
  OnDevice<float> out({0}), from(in);
  sum(out.data(), from.data(), in.size(), 64, {});
  EXPECT_THAT(out.read(), ElementsAre(std::accumulate(in.begin(), in.end(), 0.0f)));
}

TEST_F(SimtOnDevice, LetsTheLastBlockAddWhatTheOthersLeft) {
  const std::vector<float> in = small_numbers(10'000);
  for (const unsigned blocks : {1u, 2u, 17u}) {
    OnDevice<float> out({-1}), partial(std::vector<float>(blocks, 0.0f)), from(in);
    OnDevice<unsigned> counter({0});
    last_block_sum(out.data(), partial.data(), counter.data(), from.data(), in.size(), blocks, {});
    EXPECT_THAT(out.read(), ElementsAre(std::accumulate(in.begin(), in.end(), 0.0f))) << blocks;
    EXPECT_THAT(counter.read(), ElementsAre(0));
  }
}

TEST_F(SimtOnDevice, ExchangesBetweenLanes) {
  OnDevice<std::int32_t> out(std::vector<std::int32_t>(std::size_t{32} * kRows, -1));
  lanes(out.data(), {});
  const std::vector<std::int32_t>& got = out.read();
  const auto expect = [&](Row row, auto&& due) {
    for (int lane = 0; lane < 32; ++lane)
      EXPECT_EQ(got[32 * row + lane], due(lane)) << "row " << row << " lane " << lane;
  };
  const auto value = [](int lane) { return 3 * lane + 1; };
  const auto sum_of = [&](int first, int count) {
    int total = 0;
    for (int lane = first; lane < first + count; ++lane) total += value(lane);
    return total;
  };
  expect(kFromFive, [&](int) { return value(5); });
  expect(kRotated, [&](int i) { return value(i / 8 * 8 + (i + 1) % 8); });
  expect(kUp2, [&](int i) { return value(i < 2 ? i : i - 2); });
  expect(kDown4, [&](int i) { return value(i % 16 >= 12 ? i : i + 4); });
  expect(kXor9, [&](int i) { return value(i ^ 9); });
  expect(kBallotOdd, [](int) { return static_cast<std::int32_t>(0xaaaaaaaau); });
  expect(kAnyOfSeven, [](int) { return 1; });
  expect(kAllOfThem, [](int) { return 1; });
  expect(kSameThird, [](int i) {
    const std::uint32_t three = i / 3 == 10 ? 3u : 7u;
    return static_cast<std::int32_t>(three << i / 3 * 3);
  });
  expect(kAllSame, [](int) { return 1; });
  expect(kSum, [&](int) { return sum_of(0, 32); });
  expect(kLeast, [&](int) { return -value(31); });
  expect(kHalfSum, [&](int i) { return sum_of(i / 16 * 16, 16); });
  expect(kBits, [&](int i) {
    const auto bits = static_cast<unsigned>(value(i));
    return std::popcount(bits) + 100 * (std::countr_zero(bits) + 1) +
           10'000 * std::countl_zero(bits);
  });
  expect(kTileRank, [](int i) { return i % 8; });
  expect(kTileSum, [&](int i) { return sum_of(i / 8 * 8, 8); });
  expect(kTileBallot, [](int) { return 0b1010; });
}

TEST_F(SimtOnDevice, ExchangesEightBytesAtOnce) {
  OnDevice<double> out(std::vector<double>(32));
  wide_lanes(out.data(), {});
  const std::vector<double>& got = out.read();
  for (int lane = 0; lane < 32; ++lane) EXPECT_EQ(got[lane], (lane ^ 1) + 0.5) << lane;
}

// 32: one warp; 33: a warp of one lane; 1024: the most that a block may have.
TEST_F(SimtOnDevice, CountsVotesAtABarrier) {
  for (const unsigned threads : {32u, 33u, 1024u}) {
    const int all = static_cast<int>(threads);
    for (const int limit : {0, 1, all - 1, all}) {
      OnDevice<std::int32_t> out({-1, -1, -1});
      votes(out.data(), limit, threads, {});
      const std::vector<std::int32_t>& got = out.read();
      EXPECT_EQ(got[0], limit);
      EXPECT_EQ(got[1] != 0, limit > 0);
      EXPECT_EQ(got[2] != 0, limit == all);
    }
  }
}

TEST_F(SimtOnDevice, AppliesAtomicsOfEveryThread) {
  OnDevice<Cells> cells({Cells{}});
  atomics(cells.data(), 3, {});  // 192 threads
  const Cells got = cells.read().front();
  EXPECT_EQ(got.sum, -192);
  EXPECT_EQ(got.least, 5u);
  EXPECT_EQ(got.most, 191u);
  EXPECT_EQ(got.and_bits, 0xffffff00u);
  EXPECT_EQ(got.or_bits, 0xffu);
  EXPECT_EQ(got.xor_bits, 0u);  // of 0 to 191
  EXPECT_EQ(got.wrapped, 192u % 10);
  EXPECT_EQ(got.swapped, 192u);
  EXPECT_EQ(got.wide, 192ull << 33);
  EXPECT_EQ(got.single, 96.0f);
  EXPECT_EQ(got.twice, 48.0);
}

// Whatever lanes run together, each ticket is taken once; and by few atomics, if they do so at all.
TEST_F(SimtOnDevice, GroupsLanesThatRunTogether) {
  constexpr unsigned kBlocks = 3, kThreadsOfAll = 64 * kBlocks;
  OnDevice<std::int32_t> out(std::vector<std::int32_t>(kThreadsOfAll, -1));
  OnDevice<unsigned> counters(std::vector<unsigned>(5)), atomics({0});
  tickets(out.data(), counters.data(), atomics.data(), kBlocks, {});
  std::vector<std::vector<std::int32_t>> taken(5);
  for (unsigned i = 0; i < kThreadsOfAll; ++i) {
    const std::int32_t ticket = out.read()[i];
    if (i % 3 == 0) {
      EXPECT_EQ(ticket, -1);
    } else {
      taken[i % 5].push_back(ticket);
    }
  }
  for (std::size_t label = 0; label < 5; ++label) {
    std::vector<std::int32_t> due(taken[label].size());
    std::iota(due.begin(), due.end(), 0);
    EXPECT_THAT(taken[label], testing::UnorderedElementsAreArray(due)) << "label " << label;
    EXPECT_EQ(counters.read()[label], due.size());
  }
  EXPECT_LE(atomics.read()[0], 5 * kThreadsOfAll / 32);
}

TEST_F(SimtOnDevice, AddsShortFloatsAtomically) {
  OnDevice<ShortSums> sums({ShortSums{}});
  short_sums(sums.data(), {});
  const ShortSums got = sums.read().front();
  EXPECT_EQ(got.half_sum, 0x5400) << "64";
  EXPECT_EQ(got.taken, 0x5400) << "64";
  EXPECT_THAT(got.half_pair, ElementsAre(0x5400, 0xd800)) << "64 and -128";
  EXPECT_THAT(got.bfloat16_pair, ElementsAre(0x4280, 0x4280)) << "64 and 64";
  EXPECT_EQ(got.seen, 0) << "what was there before";
}

TEST_F(SimtOnDevice, KnowsItsPlaceInThreeDimensions) {
  OnDevice<std::int32_t> out(std::vector<std::int32_t>(std::size_t{8} * 6 * 8, -1));
  place(out.data(), {});
  std::vector<std::int32_t> due(out.read().size());
  std::iota(due.begin(), due.end(), 0);
  EXPECT_EQ(out.read(), due);
}

TEST_F(SimtOnDevice, SharesMemoryThatTheLaunchAsksFor) {
  for (const unsigned n : {1u, 33u, 1024u}) {
    std::vector<float> in(n);
    std::iota(in.begin(), in.end(), 1.0f);
    OnDevice<float> out(std::vector<float>(n, -1)), from(in);
    reversed(out.data(), from.data(), n, {});
    EXPECT_EQ(out.read(), std::vector<float>(in.rbegin(), in.rend())) << n;
  }
}

TEST_F(SimtOnDevice, RefusesLaunchesThatNoDeviceTakes) {
  for (const auto& [blocks, threads, shared] :
       std::vector<std::tuple<unsigned, unsigned, std::size_t>>{
           {0, 32, 0}, {1, 0, 0}, {1, 1025, 0}, {1, 32, std::size_t{1} << 20}}) {
    try {
      launch_nothing(blocks, threads, shared, {});
      ADD_FAILURE() << blocks << " blocks of " << threads << ", " << shared << " shared bytes";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo);
      EXPECT_THAT(error.what(), testing::HasSubstr("launching"));
    }
  }
}

}  // namespace
}  // namespace motley::test
