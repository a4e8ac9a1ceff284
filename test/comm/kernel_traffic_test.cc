// What kernels move, counted in sectors of 32 bytes in the emulator: at most 1.05 of those in which
// the buffers lie, for every element type, however they lie; of rows, of those in which each row
// lies. Nor do they read what nobody wrote, race or touch a byte before or behind a buffer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "comm/convert.h"
#include "comm/kernel/combine.h"
#include "comm/kernel/cut.h"
#include "comm/kernel/reduce.h"
#include "comm/quantize.h"
#include "comm/row_sums.h"
#include "comm/rows.h"
#include "comm/weighted_rows.h"
#include "test/support/elements.h"
#include "test/support/exact_array.h"
#include "test/support/row_check.h"
#include "test/support/simt/check.h"

namespace motley {
namespace {

using test::ExactArray;

constexpr double kMost = 1.05;
// A multiple of a grid's packs, so that few elements are single.
constexpr std::size_t kElements = 64 * 1024;

// The sectors in which elements [first, first + n) of `view` lie.
std::size_t sectors_of(const ConstView& view, std::size_t first, std::size_t n) {
  const std::size_t element = size_bytes(view.dtype);
  const auto begin = reinterpret_cast<std::uintptr_t>(view.data) + first * element;
  return (begin % kSectorBytes + n * element + kSectorBytes - 1) / kSectorBytes;
}
std::size_t sectors_of(const ConstView& view) { return sectors_of(view, 0, view.count); }

simt::Traffic traffic_of(const std::function<void()>& body) {
  const simt::Report report = simt::checked(body);
  EXPECT_TRUE(report.faults.empty()) << report.text();
  return report.total().global();
}

// `least`: those of all buffers, of what is read and written twice.
void expect_few_sectors(std::size_t least, const std::function<void()>& body) {
  const simt::Traffic moved = traffic_of(body);
  EXPECT_LE(moved.excess(), kMost) << moved.sectors;
  EXPECT_LE(static_cast<double>(moved.sectors), kMost * static_cast<double>(least));
  // Fewer would mean that something was not seen.
  EXPECT_GE(moved.sectors, least);
}

template <class T>
ExactArray<T> ones(std::size_t n, std::size_t phase) {
  return ExactArray<T>(std::vector<T>(n, test::element<T>(1)), phase);
}

template <class T>
class KernelTraffic : public testing::Test {};
TYPED_TEST_SUITE(KernelTraffic, test::ElementTypes);

// Phases: straight, all alike off, each otherwise.
TYPED_TEST(KernelTraffic, OfCombiningIsTheLeast) {
  using T = TypeParam;
  using Phases = std::array<std::size_t, 3>;
  for (const auto& [out, a, b] :
       {Phases{0, 0, 0}, {1, 1, 1}, {0, 1, 0}, {1, 0, 0}, {3, 0, 1}, {5, 2, 7}}) {
    SCOPED_TRACE(testing::Message() << "phases " << out << ", " << a << ", " << b);
    const Stream stream;
    const auto to = ones<T>(kElements, out), x = ones<T>(kElements, a), y = ones<T>(kElements, b);
    const std::size_t of_to = sectors_of(to.view()), of_x = sectors_of(x.view());
    expect_few_sectors(2 * of_to + of_x,
                       [&] { reduce_on_device(to.view(), x.view(), ReduceOp::kMax, stream); });
    const ConstView in[] = {x.view(), y.view(), to.view()};
    expect_few_sectors(2 * of_to + of_x + sectors_of(y.view()),
                       [&] { combine_on_device(to.view(), in, ReduceOp::kAverage, stream); });
    expect_few_sectors(2 * of_x, [&] { divide_on_device(x.view(), 3, stream); });
  }
}

template <class To, class From>
void expect_few_converting(std::size_t out, std::size_t in) {
  const Stream stream;
  const auto to = ones<To>(kElements, out);
  const auto from = ones<From>(kElements, in);
  expect_few_sectors(sectors_of(to.view()) + sectors_of(from.view()),
                     [&] { convert_on_device(to.view(), from.view(), stream); });
}

using Phases = std::pair<std::size_t, std::size_t>;

TEST(KernelTrafficOf, ConvertingIsTheLeast) {
  for (const auto& [out, in] : {Phases{0, 0}, {1, 1}, {0, 3}, {2, 1}, {5, 0}}) {
    SCOPED_TRACE(testing::Message() << "phases " << out << " and " << in);
    expect_few_converting<float, bfloat16>(out, in);
    expect_few_converting<half, float>(out, in);
  }
}

struct QuantizingCase {
  std::size_t floats, values, scales;  // phases
};

template <class T>
void expect_few_quantizing(int block, const QuantizingCase& phases) {
  SCOPED_TRACE(testing::Message() << "blocks of " << block << ", phases " << phases.floats << ", "
                                  << phases.values << ", " << phases.scales);
  const Stream stream;
  const auto floats = ones<T>(kElements, phases.floats);
  const auto values = ones<std::int8_t>(kElements, phases.values);
  const auto scales = ones<float>(scale_count(kElements, block), phases.scales);
  const Quantized by{.values = values.view(), .scales = scales.view(), .block = block};
  const std::size_t least =
      sectors_of(floats.view()) + sectors_of(values.view()) + sectors_of(scales.view());
  expect_few_sectors(least, [&] { quantize_on_device(by, floats.view(), stream); });
  expect_few_sectors(least, [&] { dequantize_on_device(floats.view(), by, stream); });
}

TEST(KernelTrafficOf, QuantizingIsTheLeast) {
  for (const int block : {64, 128}) {
    for (const QuantizingCase& phases : {QuantizingCase{0, 0, 0},
                                         {4, 4, 0},
                                         {1, 0, 0},
                                         {0, 1, 0},
                                         {1, 1, 1},
                                         {3, 2, 1},
                                         {0, 4, 0},
                                         {4, 0, 0}}) {
      expect_few_quantizing<float>(block, phases);
      expect_few_quantizing<bfloat16>(block, phases);
    }
  }
}

// All rows in a random order, and what each of them is to cost at least.
template <class T>
class Rows {
 public:
  Rows(std::size_t columns, const Phases& phases)
      : columns_(columns),
        rows_(kElements / columns),
        order_(shuffled(rows_)),
        out_(ones<T>(rows_ * columns, phases.first)),
        in_(ones<T>(rows_ * columns, phases.second)),
        index_(order_),
        segments_(segments_of(order_, rows_)),
        from_(segments_.order),
        offsets_(segments_.offsets) {}

  RowMove move() const { return {out_.view(), in_.view(), index_.view(), columns_}; }
  RowSegments sums() const {
    return {out_.view(), in_.view(), from_.view(), offsets_.view(), columns_};
  }
  std::size_t least_in() const { return least(in_.view()); }
  std::size_t least_out() const { return least(out_.view()); }
  std::size_t rows() const { return rows_; }

 private:
  static std::vector<std::int32_t> shuffled(std::size_t rows) {
    std::vector<std::int32_t> order(rows);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(1));
    return order;
  }
  std::size_t least(const ConstView& view) const {
    std::size_t sum = 0;
    for (std::size_t row = 0; row < rows_; ++row) sum += sectors_of(view, row * columns_, columns_);
    return sum;
  }

  std::size_t columns_, rows_;
  std::vector<std::int32_t> order_;
  ExactArray<T> out_, in_;
  ExactArray<std::int32_t> index_;
  IndexSegments segments_;
  ExactArray<std::int64_t> from_, offsets_;
};

// Of rows, and of a number that each span of a row asks for alone: `numbers` a span.
template <class T>
void expect_few_of_rows(const std::string& what, const Rows<T>& rows, std::size_t least,
                        std::size_t numbers, const std::function<void()>& body) {
  const std::size_t spans =
      (rows.move().columns * sizeof(T) + kSectorBytes) / 1024 + 1;  // or fewer
  const double most =
      kMost * static_cast<double>(least) + static_cast<double>(numbers * spans * rows.rows());
  const simt::Traffic moved = traffic_of(body);
  EXPECT_LE(static_cast<double>(moved.sectors), most) << what << ", " << least << " would do";
  EXPECT_GE(moved.sectors * kSectorBytes, 2 * rows.move().out.size_bytes()) << what;
}

template <class T>
void expect_few_moving(std::size_t columns, const Phases& phases) {
  SCOPED_TRACE(testing::Message() << "rows of " << columns << " " << name(dtype_of<T>)
                                  << ", phases " << phases.first << " and " << phases.second);
  const Stream stream;
  RowCheck check(stream);
  const Rows<T> rows(columns, phases);
  const std::size_t once = rows.least_in() + rows.least_out();
  expect_few_of_rows<T>("gather", rows, once, 1,
                        [&] { gather_rows_on_device(rows.move(), check, stream); });
  expect_few_of_rows<T>("scatter", rows, once, 1,
                        [&] { scatter_rows_on_device(rows.move(), check, stream); });
  // Of sums of rows of a tile or two lanes do first what others do second, which the count takes
  // for one.
  if (columns > 32 && columns < 128) return;
  if constexpr (!std::is_integral_v<T> || sizeof(T) >= 4) {
    expect_few_of_rows<T>("scatter_add", rows, once, 1,
                          [&] { scatter_add_rows_on_device(rows.move(), check, stream); });
  }
  expect_few_of_rows<T>("segments", rows, once + rows.least_out(), 3,
                        [&] { add_row_segments_on_device(rows.sums(), check, stream); });
  test::fetch_and_verify(check, stream);
}

// Rows of 32 bytes to 8 KiB: as words of 16 bytes, and odd in every way.
TEST(KernelTrafficOf, MovingRowsIsTheLeast) {
  for (const std::size_t columns : {8, 9, 33, 65, 512, 513, 2048}) {
    for (const Phases& phases : {Phases{0, 0}, {1, 1}, {0, 1}, {3, 0}})
      expect_few_moving<float>(columns, phases);
  }
  for (const std::size_t columns : {512, 513, 514}) {
    for (const Phases& phases : {Phases{0, 0}, {1, 0}, {8, 2}})
      expect_few_moving<bfloat16>(columns, phases);
  }
  expect_few_moving<double>(129, {1, 2});
  expect_few_moving<std::int8_t>(1024, {0, 0});
  expect_few_moving<std::int8_t>(1023, {1, 16});
}

// Wide rows fill the sectors in which they lie, so these are few beside what the rows hold, too.
TEST(KernelTrafficOf, OddRowsOfTwoKibibytesIsHardlyMore) {
  const Stream stream;
  RowCheck check(stream);
  const Rows<float> rows(513, {1, 3});
  const simt::Traffic moved =
      traffic_of([&] { gather_rows_on_device(rows.move(), check, stream); });
  EXPECT_LE(static_cast<double>(moved.sectors) * kSectorBytes,
            kMost * 2 * static_cast<double>(rows.move().out.size_bytes()));
}

// Tokens of two terms each, all rows in a random order, and what each of them is to cost at least.
// Numbers of rows and weights are asked for by each span of a row alone.
template <class T>
void expect_few_weighing(std::size_t columns, const Phases& phases) {
  SCOPED_TRACE(testing::Message() << "rows of " << columns << " " << name(dtype_of<T>)
                                  << ", phases " << phases.first << " and " << phases.second);
  const std::size_t tokens = kElements / 2 / columns, terms = 2;
  std::vector<std::int64_t> order(tokens * terms);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  const ExactArray<std::int64_t> row(order);
  const auto of_tokens = ones<T>(tokens * columns, phases.first);
  const auto of_rows = ones<T>(tokens * terms * columns, phases.second);
  const auto weight = ones<float>(order.size(), 0), products = ones<float>(order.size(), 0);
  const auto least = [&](const ConstView& view) {
    std::size_t sum = 0;
    for (std::size_t r = 0; r < view.count / columns; ++r)
      sum += sectors_of(view, r * columns, columns);
    return sum;
  };
  const std::size_t once = least(of_tokens.view()) + least(of_rows.view());
  const std::size_t spans = (columns * sizeof(T) + kSectorBytes) / 1024 + 1;
  const Stream stream;
  RowCheck check(stream);
  const auto expect_few = [&](const char* what, const std::function<void()>& body) {
    const simt::Traffic moved = traffic_of(body);
    const double numbers = static_cast<double>(2 * spans * order.size());
    EXPECT_LE(static_cast<double>(moved.sectors), kMost * static_cast<double>(once) + numbers)
        << what << ", " << once << " would do";
    EXPECT_GE(moved.sectors * kSectorBytes, 3 * of_tokens.view().size_bytes()) << what;
  };
  expect_few("sum", [&] {
    sum_weighted_rows_on_device(
        {of_tokens.view(), of_rows.view(), row.view(), weight.view(), terms, 1, columns}, check,
        stream);
  });
  expect_few("products", [&] {
    multiply_rows_on_device(
        {products.view(), of_tokens.view(), of_rows.view(), row.view(), terms, 1, columns}, check,
        stream);
  });
  const auto to_rows = ones<T>(tokens * terms * columns, phases.first);
  const std::size_t all = least(of_rows.view()) + least(to_rows.view());
  const simt::Traffic moved = traffic_of([&] {
    gather_scaled_rows_on_device(
        {to_rows.view(), of_rows.view(), row.view(), weight.view(), columns}, check, stream);
  });
  EXPECT_LE(static_cast<double>(moved.sectors),
            kMost * static_cast<double>(all) + static_cast<double>(2 * spans * order.size()))
      << "gather, " << all << " would do";
  EXPECT_GE(moved.sectors, all / 2);
  test::fetch_and_verify(check, stream);
}

TEST(KernelTrafficOf, WeighingRowsIsTheLeast) {
  for (const std::size_t columns : {512, 513, 2048}) {
    for (const Phases& phases : {Phases{0, 0}, {1, 1}, {3, 0}})
      expect_few_weighing<float>(columns, phases);
  }
  for (const Phases& phases : {Phases{0, 0}, {8, 2}}) {
    expect_few_weighing<bfloat16>(512, phases);
    expect_few_weighing<bfloat16>(1027, phases);
    expect_few_weighing<half>(514, phases);
  }
}

// Tails and alignments of every kind, where every byte before and behind is forbidden.
template <class T>
void combine_all(std::size_t n) {
  for (const std::size_t out : {0, 1, 3, 5}) {
    for (const std::size_t in : {0, 1, 2, 7}) {
      const auto to = ones<T>(n, out), x = ones<T>(n, in), y = ones<T>(n, (in + out) % 4);
      const ConstView sources[] = {x.view(), y.view()};
      combine_on_device(to.view(), sources, ReduceOp::kMax, {});
    }
  }
}

void convert_and_quantize_all(std::size_t n) {
  for (const std::size_t floats : {0, 1, 3, 4}) {
    for (const std::size_t others : {0, 1, 2, 5}) {
      const auto f = ones<float>(n, floats);
      const auto h = ones<half>(n, others);
      convert_on_device(h.view(), f.view(), {});
      convert_on_device(f.view(), h.view(), {}, 0.5);
      const auto values = ones<std::int8_t>(n, 4 * others + floats % 2);
      const auto scales = ones<float>(scale_count(n, 64), others);
      const Quantized by{.values = values.view(), .scales = scales.view(), .block = 64};
      quantize_on_device(by, f.view(), {});
      dequantize_on_device(f.view(), by, {});
      quantize_on_device(by, h.view(), {});
      dequantize_on_device(h.view(), by, {});
    }
  }
}

TEST(KernelsTouch, NothingBesideTheirBuffers) {
  for (const std::size_t n : {1, 5, 16, 31, 33, 65, 130, 513, 4099}) {
    SCOPED_TRACE(testing::Message() << n << " elements");
    const simt::Report report = simt::checked([&] {
      combine_all<float>(n);
      combine_all<std::int8_t>(n);
      combine_all<bfloat16>(n);
      combine_all<double>(n);
      convert_and_quantize_all(n);
    });
    EXPECT_TRUE(report.faults.empty()) << report.text();
  }
}

}  // namespace
}  // namespace motley
