// Rows gathered and scattered by an index, of every element type, on the CPU and on a device;
// indexes that name no row are found and change nothing else.
#include "comm/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "comm/error.h"
#include "test/support/device_array.h"
#include "test/support/elements.h"
#include "test/support/random_elements.h"
#include "test/support/row_check.h"

namespace motley {
namespace {

struct Sizes {
  std::size_t rows;  // of what is indexed
  std::size_t columns;
  std::size_t phase;  // of `in`, elements behind a multiple of 256 bytes; `out` lies straight
};

// One column; fewer words than lanes, odd and even; whole words of 16 bytes; longer than a block of
// threads; all rows but the first at odd places.
constexpr Sizes kSizes[] = {{40, 1, 0},  {40, 3, 0},   {40, 8, 1},    {17, 64, 0},
                            {17, 65, 0}, {9, 4096, 0}, {9, 4096, 16}, {3, 5001, 3}};

// Rows in a random order, some of them left out, each once.
std::vector<std::int64_t> some_rows(std::size_t rows, std::mt19937_64& random) {
  std::vector<std::int64_t> index(rows);
  std::iota(index.begin(), index.end(), 0);
  std::shuffle(index.begin(), index.end(), random);
  for (std::size_t i = 0; i < rows; i += 5) index[i] = kNoRow;
  return index;
}

template <class T>
std::vector<T> gathered(const std::vector<T>& in, const std::vector<std::int64_t>& index,
                        std::size_t columns) {
  std::vector<T> out(index.size() * columns);
  for (std::size_t i = 0; i < index.size(); ++i) {
    for (std::size_t c = 0; index[i] != kNoRow && c < columns; ++c)
      out[i * columns + c] = in[static_cast<std::size_t>(index[i]) * columns + c];
  }
  return out;
}

// `before`, with the rows of `in` where `index` says.
template <class T>
std::vector<T> scattered(std::vector<T> before, const std::vector<T>& in,
                         const std::vector<std::int64_t>& index, std::size_t columns) {
  for (std::size_t i = 0; i < index.size(); ++i) {
    for (std::size_t c = 0; index[i] != kNoRow && c < columns; ++c)
      before[static_cast<std::size_t>(index[i]) * columns + c] = in[i * columns + c];
  }
  return before;
}

template <class T>
class Rows : public testing::Test {
 protected:
  // Calls check(sizes, index, values of the indexed side, values of the other, garbage for `out`).
  template <class Check>
  void each_case(Check&& check) {
    std::mt19937_64 random(16);
    for (const Sizes& sizes : kSizes) {
      const auto index = some_rows(sizes.rows, random);
      const std::size_t n = sizes.rows * sizes.columns;
      SCOPED_TRACE(testing::Message()
                   << sizes.rows << " rows of " << sizes.columns << ", phase " << sizes.phase);
      check(sizes, index, test::random_bits<T>(n, random), test::random_bits<T>(n, random));
    }
  }
};
TYPED_TEST_SUITE(Rows, test::ElementTypes);

TYPED_TEST(Rows, AreGatheredAndScatteredOnTheCpu) {
  using T = TypeParam;
  this->each_case([](const Sizes& sizes, const auto& index, const auto& in, const auto& before) {
    const std::vector<std::int32_t> narrow(index.begin(), index.end());
    for (const ConstView by : {ConstView(index), ConstView(narrow)}) {
      std::vector<T> out = before;
      gather_rows({.out = out, .in = in, .index = by, .columns = sizes.columns});
      EXPECT_EQ(test::first_difference(out, gathered(in, index, sizes.columns)), out.size());
      out = before;
      scatter_rows({.out = out, .in = in, .index = by, .columns = sizes.columns});
      EXPECT_EQ(test::first_difference(out, scattered(before, in, index, sizes.columns)),
                out.size());
    }
  });
}

template <class T, class Index>
void check_on_device(const Sizes& sizes, const std::vector<std::int64_t>& index,
                     const std::vector<T>& in, const std::vector<T>& before) {
  const Stream stream;
  RowCheck check(stream);
  test::DeviceArray<Index> by(std::vector<Index>(index.begin(), index.end()));
  test::DeviceArray<T> from(in, sizes.phase), to(before);
  const RowMove move{
      .out = to.view(), .in = from.view(), .index = by.view(), .columns = sizes.columns};
  scatter_rows_on_device(move, check, stream);
  EXPECT_EQ(test::first_difference(to.values(stream), scattered(before, in, index, sizes.columns)),
            in.size());
  gather_rows_on_device(move, check, stream);
  EXPECT_EQ(test::first_difference(to.values(stream), gathered(in, index, sizes.columns)),
            in.size());
  EXPECT_TRUE(to.guarded());
  test::fetch_and_verify(check, stream);
}

TYPED_TEST(Rows, AreGatheredAndScatteredOnADevice) {
  using T = TypeParam;
  if (device_count() == 0) GTEST_SKIP() << "no GPU, or no CUDA in this build";
  this->each_case([](const Sizes& sizes, const auto& index, const auto& in, const auto& before) {
    check_on_device<T, std::int32_t>(sizes, index, in, before);
    check_on_device<T, std::int64_t>(sizes, index, in, before);
  });
}

// More rows than a grid has threads: some take several.
TEST(ManyRows, AreTakenInTurnsOnADevice) {
  if (device_count() == 0) GTEST_SKIP() << "no GPU, or no CUDA in this build";
  std::mt19937_64 random(18);
  const std::size_t rows = 2048 * 256 + 1001;
  check_on_device<std::int16_t, std::int32_t>({rows, 1, 0}, some_rows(rows, random),
                                              test::random_bits<std::int16_t>(rows, random),
                                              test::random_bits<std::int16_t>(rows, random));
}

TEST(RowsOfNothing, AreNoWork) {
  const std::vector<float> in = {1, 2};
  std::vector<float> none;
  const std::vector<std::int32_t> nowhere;
  gather_rows({.out = none, .in = in, .index = nowhere, .columns = 2});
  scatter_rows({.out = none, .in = none, .index = nowhere, .columns = 2});
  std::vector<float> out = {5, 6, 7};
  const std::vector<std::int32_t> no_rows(3, kNoRow);
  gather_rows({.out = out, .in = none, .index = no_rows, .columns = 1});
  EXPECT_THAT(out, testing::Each(0));
}

TEST(RowsOfNothing, AreNoWorkOnADevice) {
  if (device_count() == 0) GTEST_SKIP() << "no GPU, or no CUDA in this build";
  const Stream stream;
  RowCheck check(stream);
  test::DeviceArray<float> none(std::vector<float>{}), out(std::vector<float>{5, 6, 7});
  test::DeviceArray<std::int32_t> nowhere(std::vector<std::int32_t>{});
  test::DeviceArray<std::int32_t> no_rows(std::vector<std::int32_t>(3, kNoRow));
  scatter_rows_on_device({none.view(), none.view(), nowhere.view(), 2}, check, stream);
  gather_rows_on_device({out.view(), none.view(), no_rows.view(), 1}, check, stream);
  EXPECT_THAT(out.values(stream), testing::Each(0));
}

// Offsets beyond 32 bits: of 2^21 + 1 rows of 1,024 bytes the last and the first.
TEST(ManyRows, AreCountedInSixtyFourBitsOnADevice) {
  if (device_count() == 0) GTEST_SKIP() << "no GPU, or no CUDA in this build";
  if (!test::device_has_room()) GTEST_SKIP() << "less than 20 GiB of device memory are free";
  constexpr std::size_t kRows = (std::size_t{1} << 21) + 1, kColumns = 1024;
  const Stream stream;
  RowCheck check(stream);
  const DeviceBuffer table(kRows * kColumns);
  const View all = table.view(kRows * kColumns, DType::kInt8);
  const std::vector<std::int8_t> last(kColumns, 3), first(kColumns, 5);
  std::vector<std::int8_t> out(2 * kColumns);
  test::DeviceArray<std::int8_t> to(out);
  test::DeviceArray<std::int32_t> index(std::vector<std::int32_t>{kRows - 1, 0});
  motley::copy(all.slice(all.count - kColumns, kColumns), last, stream);
  motley::copy(all.slice(0, kColumns), first, stream);
  gather_rows_on_device({to.view(), all, index.view(), kColumns}, check, stream);
  out = to.values(stream);
  EXPECT_THAT(std::span(out).first(kColumns), testing::Each(3));
  EXPECT_THAT(std::span(out).last(kColumns), testing::Each(5));
}

// The message names position, index and rows.
template <class Call>
void expect_no_row(Call&& call, const std::vector<std::string>& facts) {
  try {
    call();
    ADD_FAILURE() << "nothing was found";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalid);
    for (const std::string& fact : facts) EXPECT_THAT(error.what(), testing::HasSubstr(fact));
  }
}

const std::vector<std::int32_t> kBeyond = {1, 3, 0}, kBelow = {1, 0, -2};

TEST(RowsThatAreNotThere, AreFoundOnTheCpuBeforeAnythingIsWritten) {
  const std::vector<float> in = {1, 2, 3};
  std::vector<float> out = {7, 8, 9};
  expect_no_row([&] { gather_rows({out, in, kBeyond, 1}); }, {"gather_rows", "[1] is 3", "3 rows"});
  expect_no_row([&] { scatter_rows({out, in, kBelow, 1}); }, {"scatter_rows", "[2] is -2"});
  EXPECT_THAT(out, testing::ElementsAre(7, 8, 9));
}

TEST(RowsThatAreNotThere, AreNotedOnADeviceAndLeftOut) {
  if (device_count() == 0) GTEST_SKIP() << "no GPU, or no CUDA in this build";
  const Stream stream;
  RowCheck check(stream);
  const auto fetch = [&] { test::fetch_and_verify(check, stream); };
  const std::vector<float> in = {1, 2, 3}, before = {7, 8, 9};
  test::DeviceArray<float> from(in), to(before);
  test::DeviceArray<std::int32_t> beyond(kBeyond), below(kBelow);
  gather_rows_on_device({to.view(), from.view(), beyond.view(), 1}, check, stream);
  expect_no_row(fetch, {"[1] is 3", "3 rows", "1 such"});
  EXPECT_THAT(to.values(stream), testing::ElementsAre(2, 0, 1));
  fetch();  // and is forgotten
  scatter_rows_on_device({to.view(), from.view(), below.view(), 1}, check, stream);
  scatter_rows_on_device({to.view(), from.view(), below.view(), 1}, check, stream);
  expect_no_row(fetch, {"[2] is -2", "2 such"});
  EXPECT_THAT(to.values(stream), testing::ElementsAre(2, 1, 1));
  EXPECT_TRUE(to.guarded());
}

}  // namespace
}  // namespace motley
