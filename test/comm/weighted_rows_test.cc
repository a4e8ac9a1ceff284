// Rows weighted and added up where an index says: what is due by hand on the CPU, and on a device
// the same bits, however the rows lie; numbers of rows that are none are found.
#include "comm/weighted_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "test/support/device_array.h"
#include "test/support/errors.h"
#include "test/support/random_elements.h"
#include "test/support/row_check.h"

namespace motley {
namespace {

using test::expect_error;
using testing::ElementsAre;

template <class T>
class WeightedRows : public testing::Test {};
using Elements = testing::Types<float, half, bfloat16>;
TYPED_TEST_SUITE(WeightedRows, Elements);

// Columns: one, narrow and odd, more than a warp has lanes, whole spans of each type, one less.
constexpr std::size_t kColumns[] = {1, 7, 33, 130, 512, 1023};
constexpr std::size_t kRows = 11;  // of `in`

template <class T>
std::vector<T> numbers(std::size_t n, std::mt19937_64& random) {
  std::vector<T> values(n);
  for (T& x : values) x = static_cast<T>(static_cast<float>(random() % 4001) / 1000 - 2);
  return values;
}

// Some rows are named often, some never, and some places name none.
std::vector<std::int64_t> index_of(std::size_t n, std::mt19937_64& random) {
  std::vector<std::int64_t> index(n);
  for (std::int64_t& row : index) row = static_cast<std::int64_t>(random() % (kRows + 2)) - 3;
  for (std::int64_t& row : index) row = std::max<std::int64_t>(row, kNoRow);
  return index;
}

TYPED_TEST(WeightedRows, AreWhatIsDueOnTheCpu) {
  using T = TypeParam;
  const auto of = [](std::vector<float> values) {
    std::vector<T> elements;
    for (const float x : values) elements.push_back(static_cast<T>(x));
    return elements;
  };
  const std::vector<T> in = of({1, 2, 3, 4, 5, 6});  // three rows of two
  std::vector<T> out = of({9, 9, 9, 9, 9, 9});
  const std::vector<std::int64_t> index = {2, kNoRow, 0};
  const std::vector<float> scale = {0.5f, 7, -2};
  gather_scaled_rows({out, in, index, scale, 2});
  EXPECT_EQ(test::first_difference(out, of({2.5f, 3, 0, 0, -2, -4})), 6u);
  gather_scaled_rows({out, in, index, {}, 2});
  EXPECT_EQ(test::first_difference(out, of({5, 6, 0, 0, 1, 2})), 6u);

  // Two sums of two terms of two parts: 0.5 (row 0 + row 2) + 4 row 1; nothing and 3 row 2.
  const std::vector<std::int64_t> row = {0, 2, kNoRow, 1, kNoRow, kNoRow, 2, kNoRow};
  const std::vector<float> weight = {0.5f, 4, 100, 3};
  std::vector<T> sums = of({9, 9, 9, 9});
  sum_weighted_rows({sums, in, row, weight, 2, 2, 2});
  EXPECT_EQ(test::first_difference(sums, of({15, 20, 15, 18})), 4u);
  sum_weighted_rows({sums, in, row, {}, 2, 2, 2});
  EXPECT_EQ(test::first_difference(sums, of({9, 12, 5, 6})), 4u);

  const std::vector<T> by = of({1, 10, 2, 0});
  std::vector<float> products(4, 9);
  multiply_rows({products, by, in, row, 2, 2, 2});
  EXPECT_THAT(products, ElementsAre(86, 43, 0, 10));
}

TEST(WeightedRowsOf, SixteenBitFloatsAreRoundedOnce) {
  // 2048 has no room for 1 in float16, but for both of them together.
  const std::vector<half> in = {half(2048), half(1), half(1)};
  const std::vector<std::int64_t> row = {0, 1, 2};
  std::vector<half> out(1);
  sum_weighted_rows({.out = out, .in = in, .row = row, .terms = 3});
  EXPECT_EQ(static_cast<float>(out[0]), 2050);
}

// Scenario M36: what experts give back in 16 bits is added in float32: the sum of eight is within
// one unit in the last place of the exact one. Rounded after each term it is up to three off.
TYPED_TEST(WeightedRows, M36_SumsAreWithinAUnitInTheLastPlace) {
  using T = TypeParam;
  if (sizeof(T) == 4) return;  // of 16-bit floats alone
  constexpr int kBits = std::is_same_v<T, half> ? 10 : 7;
  constexpr std::size_t kTerms = 8, kSums = 200, kMany = 5;
  std::mt19937_64 random(36);
  const auto in = numbers<T>(kRows * kMany, random);
  std::vector<std::int64_t> row(kSums * kTerms);
  for (std::int64_t& at : row) at = static_cast<std::int64_t>(random() % kRows);
  const auto weight = numbers<float>(row.size(), random);
  std::vector<T> out(kSums * kMany);
  sum_weighted_rows({out, in, row, weight, kTerms, 1, kMany});
  for (std::size_t i = 0; i < out.size(); ++i) {
    double exact = 0;
    for (std::size_t j = 0; j < kTerms; ++j) {
      const std::size_t term = i / kMany * kTerms + j;
      const auto from = static_cast<std::size_t>(row[term]) * kMany + i % kMany;
      exact +=
          static_cast<double>(weight[term]) * static_cast<double>(static_cast<float>(in[from]));
    }
    const double unit = std::ldexp(1.0, std::max(std::ilogb(exact), -10) - kBits);
    EXPECT_NEAR(static_cast<float>(out[i]), exact, unit) << i;
  }
}

TEST(WeightedRowsOf, TheCpuNamesTheFirstRowThatIsNone) {
  std::vector<float> out(2, 5), in(3);
  const std::vector<std::int64_t> index = {0, 3};
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { gather_scaled_rows({.out = out, .in = in, .index = index}); },
           [&] { sum_weighted_rows({.out = out, .in = in, .row = index}); },
           [&] { multiply_rows({.out = out, .by = out, .in = in, .row = index}); }}) {
    expect_error(ErrorCode::kInvalid, {"3", "1"}, call);
    EXPECT_THAT(out, ElementsAre(5, 5));
  }
  std::vector<double> wide(2);
  expect_error(ErrorCode::kInvalid, {"float64"}, [&] {
    gather_scaled_rows({.out = wide, .in = wide, .index = std::vector<std::int64_t>{0, 1}});
  });
}

// Phases of `out`, `in` and `by`: elements behind a multiple of 256 bytes.
struct Lie {
  std::size_t out, in, by;
};

template <class T>
void expect_same_on_device(std::size_t count, std::size_t columns, const Lie& lie,
                           std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << count << " rows of " << columns << ", phases " << lie.out
                                  << ", " << lie.in << ", " << lie.by);
  const Stream stream;
  RowCheck check(stream);
  const auto in = numbers<T>(kRows * columns, random);
  const test::DeviceArray<T> from(in, lie.in);
  for (const bool weighs : {false, true}) {
    const auto index = index_of(count, random);
    const auto scale = numbers<float>(weighs ? count : 0, random);
    std::vector<T> due(count * columns);
    gather_scaled_rows({due, in, index, scale, columns});
    test::DeviceArray<T> to(std::vector<T>(due.size(), T(7)), lie.out);
    const test::DeviceArray<std::int64_t> by_row(index);
    const test::DeviceArray<float> by_scale(scale);
    gather_scaled_rows_on_device({to.view(), from.view(), by_row.view(), by_scale.view(), columns},
                                 check, stream);
    EXPECT_EQ(test::first_difference(to.values(stream), due), due.size()) << "gathered";
    EXPECT_TRUE(to.guarded());
  }
  for (const std::size_t terms : {1, 2, 5}) {
    for (const std::size_t parts : {1, 3}) {
      const auto row = index_of(count * terms * parts, random);
      const auto weight = numbers<float>(count * terms, random);
      std::vector<T> due(count * columns);
      sum_weighted_rows({due, in, row, weight, terms, parts, columns});
      test::DeviceArray<T> to(std::vector<T>(due.size(), T(7)), lie.out);
      const test::DeviceArray<std::int64_t> by_row(row);
      const test::DeviceArray<float> by_weight(weight);
      sum_weighted_rows_on_device(
          {to.view(), from.view(), by_row.view(), by_weight.view(), terms, parts, columns}, check,
          stream);
      EXPECT_EQ(test::first_difference(to.values(stream), due), due.size())
          << "sums of " << terms << " terms of " << parts;
      EXPECT_TRUE(to.guarded());

      const auto dy = numbers<T>(count * columns, random);
      const test::DeviceArray<T> with(dy, lie.by);
      std::vector<float> products(count * terms);
      multiply_rows({products, dy, in, row, terms, parts, columns});
      test::DeviceArray<float> out(std::vector<float>(products.size(), 7), lie.out);
      multiply_rows_on_device(
          {out.view(), with.view(), from.view(), by_row.view(), terms, parts, columns}, check,
          stream);
      const std::vector<float> got = out.values(stream);
      for (std::size_t i = 0; i < products.size(); ++i) {
        // Terms are at most 2 by 6 each.
        const double bound = 1e-6 * (12 * std::sqrt(static_cast<double>(columns)) + 1);
        EXPECT_NEAR(got[i], products[i], bound) << "product " << i << " of " << terms;
      }
      EXPECT_TRUE(out.guarded());
    }
  }
  test::fetch_and_verify(check, stream);
}

TYPED_TEST(WeightedRows, AreTheSameOnADevice) {
  if (device_count() == 0) GTEST_SKIP() << "no GPU, or no CUDA in this build";
  std::mt19937_64 random(9);
  for (const std::size_t columns : kColumns) {
    for (const Lie& lie : {Lie{0, 0, 0}, {1, 1, 1}, {5, 3, 2}})
      expect_same_on_device<TypeParam>(6, columns, lie, random);
  }
  for (const std::size_t count : {0, 1}) {
    expect_same_on_device<TypeParam>(count, 33, {0, 1, 0}, random);
    expect_same_on_device<TypeParam>(count, 3, {1, 0, 0}, random);
  }
}

// More terms than a warp has lanes.
TYPED_TEST(WeightedRows, HaveAnyNumberOfTermsOnADevice) {
  using T = TypeParam;
  if (device_count() == 0) GTEST_SKIP() << "no GPU, or no CUDA in this build";
  std::mt19937_64 random(10);
  constexpr std::size_t kTerms = 70, kMany = 40;
  const auto in = numbers<T>(kRows * kMany, random), by = numbers<T>(2 * kMany, random);
  const auto row = index_of(2 * kTerms, random);
  std::vector<float> due(2 * kTerms);
  multiply_rows({due, by, in, row, kTerms, 1, kMany});
  const Stream stream;
  RowCheck check(stream);
  test::DeviceArray<float> out(std::vector<float>(due.size()));
  const test::DeviceArray<T> from(in), with(by);
  const test::DeviceArray<std::int64_t> by_row(row);
  multiply_rows_on_device({out.view(), with.view(), from.view(), by_row.view(), kTerms, 1, kMany},
                          check, stream);
  const std::vector<float> got = out.values(stream);
  for (std::size_t i = 0; i < due.size(); ++i) EXPECT_NEAR(got[i], due[i], 1e-4) << i;
  test::fetch_and_verify(check, stream);
}

TEST(WeightedRowsOf, ADeviceNotesRowsThatAreNone) {
  if (device_count() == 0) GTEST_SKIP() << "no GPU, or no CUDA in this build";
  const Stream stream;
  for (const std::size_t columns : {4, 40}) {
    const std::vector<float> in(3 * columns, 2);
    const test::DeviceArray<float> from(in);
    test::DeviceArray<float> out(std::vector<float>(2 * columns, 7)), products({7, 7});
    const test::DeviceArray<std::int64_t> index({1, 3});
    const auto expect_noted = [&](auto call) {
      RowCheck check(stream);
      call(check);
      expect_error(ErrorCode::kInvalid, {"3"}, [&] { test::fetch_and_verify(check, stream); });
      const std::vector<float> got = out.values(stream);
      EXPECT_EQ(got.front(), 2) << columns;
      EXPECT_EQ(got.back(), 0) << columns;
    };
    expect_noted([&](RowCheck& check) {
      gather_scaled_rows_on_device(
          {.out = out.view(), .in = from.view(), .index = index.view(), .columns = columns}, check,
          stream);
    });
    expect_noted([&](RowCheck& check) {
      sum_weighted_rows_on_device(
          {.out = out.view(), .in = from.view(), .row = index.view(), .columns = columns}, check,
          stream);
    });
    expect_noted([&](RowCheck& check) {
      multiply_rows_on_device({.out = products.view(),
                               .by = from.view().slice(0, 2 * columns),
                               .in = from.view(),
                               .row = index.view(),
                               .columns = columns},
                              check, stream);
      EXPECT_THAT(products.values(stream), ElementsAre(4 * static_cast<float>(columns), 0));
    });
  }
}

}  // namespace
}  // namespace motley
