// Rows added where an index says: the same sums on the CPU and on a device, the same bits where the
// order is fixed; numbers of rows that are none are found.
#include "comm/row_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "test/support/device_array.h"
#include "test/support/elements.h"
#include "test/support/errors.h"
#include "test/support/random_elements.h"
#include "test/support/row_check.h"

namespace motley {
namespace {

using test::expect_error;
using testing::ElementsAre;

// Columns: one; odd, so that 16-bit floats are added one by one; even; longer than a warp; longer
// than a block of threads. Rows: fewer than terms, so that some are named often, others never.
constexpr std::size_t kRows = 13, kTerms = 100, kColumns[] = {1, 7, 8, 33, 66, 300};

std::vector<std::int64_t> some_index(std::mt19937_64& random) {
  std::vector<std::int64_t> index(kTerms);
  for (std::int64_t& row : index) row = static_cast<std::int64_t>(random() % (kRows - 2)) - 1;
  return index;
}

// Whole numbers so small that their sums are exact in any order and every type.
template <class T>
std::vector<T> small_numbers(std::size_t n, std::mt19937_64& random) {
  std::vector<T> values(n);
  for (T& value : values) value = static_cast<T>(static_cast<float>(random() % 3) - 1);
  return values;
}

template <class T>
std::vector<T> summed(std::vector<T> out, const std::vector<T>& in,
                      const std::vector<std::int64_t>& index, std::size_t columns) {
  for (std::size_t i = 0; i < index.size(); ++i) {
    for (std::size_t c = 0; index[i] != kNoRow && c < columns; ++c) {
      T& to = out[static_cast<std::size_t>(index[i]) * columns + c];
      to = static_cast<T>(static_cast<float>(to) + static_cast<float>(in[i * columns + c]));
    }
  }
  return out;
}

template <class T>
class RowSums : public testing::Test {};
TYPED_TEST_SUITE(RowSums, test::ElementTypes);

TYPED_TEST(RowSums, AreMadeOnTheCpu) {
  using T = TypeParam;
  std::mt19937_64 random(31);
  for (const std::size_t columns : kColumns) {
    const auto index = some_index(random);
    const std::vector<std::int32_t> narrow(index.begin(), index.end());
    const auto in = small_numbers<T>(kTerms * columns, random);
    const auto before = small_numbers<T>(kRows * columns, random);
    const auto due = summed(before, in, index, columns);
    for (const ConstView by : {ConstView(index), ConstView(narrow)}) {
      std::vector<T> out = before;
      scatter_add_rows({.out = out, .in = in, .index = by, .columns = columns});
      EXPECT_EQ(test::first_difference(out, due), out.size()) << columns << " columns";
      const IndexSegments segments = segments_of(by, kRows);
      out = before;
      add_row_segments({out, in, segments.order, segments.offsets, columns});
      EXPECT_EQ(test::first_difference(out, due), out.size()) << columns << " columns";
    }
  }
}

template <class T>
void expect_sums_on_device(std::size_t columns, std::size_t phase, std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << columns << " columns, phase " << phase);
  const Stream stream;
  RowCheck check(stream);
  const auto index = some_index(random);
  const auto in = small_numbers<T>(kTerms * columns, random);
  const auto before = small_numbers<T>(kRows * columns, random);
  const auto due = summed(before, in, index, columns);
  test::DeviceArray<T> from(in, phase), to(before, phase);
  test::DeviceArray<std::int64_t> by(index);
  test::DeviceArray<std::int32_t> narrow(std::vector<std::int32_t>(index.begin(), index.end()));
  scatter_add_rows_on_device({to.view(), from.view(), by.view(), columns}, check, stream);
  EXPECT_EQ(test::first_difference(to.values(stream), due), due.size());
  scatter_add_rows_on_device({to.view(), from.view(), narrow.view(), columns}, check, stream);
  const auto twice = summed(due, in, index, columns);
  EXPECT_EQ(test::first_difference(to.values(stream), twice), due.size());
  EXPECT_TRUE(to.guarded());
  test::fetch_and_verify(check, stream);
}

// A phase of 1 element lets no two 16-bit floats be added at once.
TYPED_TEST(RowSums, AreMadeByAtomicsOnADevice) {
  using T = TypeParam;
  if (device_count() == 0) GTEST_SKIP() << "no GPU, or no CUDA in this build";
  std::mt19937_64 random(32);
  if (std::is_integral_v<T> && sizeof(T) < 4) {
    const Stream stream;
    RowCheck check(stream);
    test::DeviceArray<T> one(std::vector<T>(1));
    test::DeviceArray<std::int32_t> by(std::vector<std::int32_t>(1));
    return expect_error(ErrorCode::kInvalid, {name(dtype_of<T>), "add_row_segments"}, [&] {
      scatter_add_rows_on_device({one.view(), one.view(), by.view(), 1}, check, stream);
    });
  }
  for (const std::size_t columns : kColumns) {
    for (const std::size_t phase : {0, 1}) expect_sums_on_device<T>(columns, phase, random);
  }
}

// Of any numbers, whose sums depend on the order.
TYPED_TEST(RowSums, InAFixedOrderHaveTheSameBitsOnADevice) {
  using T = TypeParam;
  if (device_count() == 0) GTEST_SKIP() << "no GPU, or no CUDA in this build";
  std::mt19937_64 random(33);
  for (const std::size_t columns : kColumns) {
    const IndexSegments by = segments_of(some_index(random), kRows);
    const auto in = test::random_bits<T>(kTerms * columns, random);
    const auto before = test::random_bits<T>(kRows * columns, random);
    std::vector<T> due = before;
    add_row_segments({due, in, by.order, by.offsets, columns});
    const Stream stream;
    RowCheck check(stream);
    test::DeviceArray<T> from(in, 1), to(before, 3);
    test::DeviceArray<std::int64_t> order(by.order), offsets(by.offsets);
    add_row_segments_on_device({to.view(), from.view(), order.view(), offsets.view(), columns},
                               check, stream);
    EXPECT_EQ(test::first_difference(to.values(stream), due), due.size()) << columns << " columns";
    EXPECT_TRUE(to.guarded());
    test::fetch_and_verify(check, stream);
  }
}

TEST(RowSumsOf, SixteenBitFloatsInAFixedOrderAreRoundedOnce) {
  // 2048 has no room for 1 in float16, but for both of them together.
  std::vector<half> out = {half(2048)};
  const std::vector<half> in = {half(1), half(1)};
  const std::vector<std::int32_t> index = {0, 0};
  const IndexSegments by = segments_of(index, 1);
  add_row_segments({out, in, by.order, by.offsets, 1});
  EXPECT_EQ(static_cast<float>(out[0]), 2050);
  out = {half(2048)};
  scatter_add_rows({.out = out, .in = in, .index = index, .columns = 1});
  EXPECT_EQ(static_cast<float>(out[0]), 2048);
}

TEST(RowSumsOf, NothingAreNoWork) {
  std::vector<float> none, out = {1, 2};
  const std::vector<std::int32_t> nowhere, no_rows(3, kNoRow);
  scatter_add_rows({.out = out, .in = none, .index = nowhere, .columns = 2});
  const IndexSegments by = segments_of(no_rows, 2);
  EXPECT_THAT(by.offsets, ElementsAre(0, 0, 0));
  add_row_segments({out, none, by.order, by.offsets, 1});
  EXPECT_THAT(out, ElementsAre(1, 2));
  if (device_count() == 0) return;
  const Stream stream;
  RowCheck check(stream);
  test::DeviceArray<float> nothing(none), there(out);
  test::DeviceArray<std::int32_t> index(nowhere);
  test::DeviceArray<std::int64_t> order(by.order), offsets(by.offsets);
  scatter_add_rows_on_device({there.view(), nothing.view(), index.view(), 1}, check, stream);
  add_row_segments_on_device({there.view(), nothing.view(), order.view(), offsets.view(), 1}, check,
                             stream);
  EXPECT_THAT(there.values(stream), ElementsAre(1, 2));
}

TEST(RowSumsOf, RowsThatAreNotThereAreRefusedBeforeAnythingIsWritten) {
  const std::vector<float> in = {1, 2, 3};
  std::vector<float> out = {7, 8};
  const std::vector<std::int32_t> beyond = {1, 2, 0};
  using Numbers = std::vector<std::int64_t>;
  const Numbers good = {0, 1}, bad = {0, 3}, ascending = {0, 1, 2};
  const auto invalid = [](const std::vector<std::string>& facts, auto&& call) {
    expect_error(ErrorCode::kInvalid, facts, [&] { call(); });
  };
  invalid({"scatter_add_rows", "[1] is 2", "2 rows"}, [&] {
    scatter_add_rows({out, in, beyond, 1});
  });
  invalid({"segments_of", "[1] is 2"}, [&] { segments_of(beyond, 2); });
  invalid({"[1] is 3", "3 rows"}, [&] { add_row_segments({out, in, bad, ascending, 1}); });
  for (const Numbers& offsets : {Numbers{0, 2, 1}, Numbers{1, 1, 2}, Numbers{0, 1, 1}})
    invalid({"offsets["}, [&] { add_row_segments({out, in, good, offsets, 1}); });
  EXPECT_THAT(out, ElementsAre(7, 8));
}

TEST(RowSumsOf, RowsThatAreNotThereAreNotedOnADevice) {
  if (device_count() == 0) GTEST_SKIP() << "no GPU, or no CUDA in this build";
  const Stream stream;
  RowCheck check(stream);
  const auto fetch = [&] { test::fetch_and_verify(check, stream); };
  test::DeviceArray<float> from(std::vector<float>{1, 2, 3}), to(std::vector<float>{7, 8});
  test::DeviceArray<std::int32_t> beyond(std::vector<std::int32_t>{1, 2, 0});
  scatter_add_rows_on_device({to.view(), from.view(), beyond.view(), 1}, check, stream);
  expect_error(ErrorCode::kInvalid, {"[1] is 2", "2 rows", "1 such"}, fetch);
  EXPECT_THAT(to.values(stream), ElementsAre(10, 9));
  // Offsets beyond the end are taken for the end.
  test::DeviceArray<std::int64_t> order(std::vector<std::int64_t>{0, 3, 1});
  test::DeviceArray<std::int64_t> offsets(std::vector<std::int64_t>{-4, 1, 99});
  add_row_segments_on_device({to.view(), from.view(), order.view(), offsets.view(), 1}, check,
                             stream);
  expect_error(ErrorCode::kInvalid, {"[1] is 3", "3 rows", "1 such"}, fetch);
  EXPECT_THAT(to.values(stream), ElementsAre(11, 11));
  EXPECT_TRUE(to.guarded());
}

}  // namespace
}  // namespace motley
