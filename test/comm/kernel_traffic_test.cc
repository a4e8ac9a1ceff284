// What kernels move, counted in sectors of 32 bytes in the emulator: at most 1.05 of what their
// warps need, and of what the buffers hold, for every element type, however the buffers lie. Nor do
// they read what nobody wrote, race or leave their buffers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "comm/convert.h"
#include "comm/kernel/combine.h"
#include "comm/kernel/reduce.h"
#include "comm/quantize.h"
#include "comm/rows.h"
#include "test/support/device_array.h"
#include "test/support/elements.h"
#include "test/support/simt/check.h"

namespace motley {
namespace {

constexpr double kMost = 1.05;
// Of what the buffers hold: a warp's words of a crooked buffer lie in one sector more, and the last
// lane reads a word of the next warp.
constexpr double kMostCrooked = 1.09;
// A multiple of a grid's packs, so that few elements are single.
constexpr std::size_t kElements = 64 * 1024;

// `bytes`: of all buffers, those that are read and written twice.
void expect_few_sectors(std::size_t bytes, const std::function<void()>& body, double most = kMost) {
  const simt::Report report = simt::checked(body);
  EXPECT_TRUE(report.faults.empty()) << report.text();
  const simt::Traffic moved = report.total().global();
  EXPECT_LE(moved.excess(), kMost) << report.text();
  EXPECT_LE(static_cast<double>(moved.sectors), most * static_cast<double>(bytes) / 32)
      << report.text();
  // Fewer would mean that something was not seen.
  EXPECT_GE(moved.sectors * 32, bytes) << report.text();
}

template <class T>
test::DeviceArray<T> ones(std::size_t n, std::size_t phase) {
  return test::DeviceArray<T>(std::vector<T>(n, test::element<T>(1)), phase);
}

template <class T>
class KernelTraffic : public testing::Test {};
TYPED_TEST_SUITE(KernelTraffic, test::ElementTypes);

// Phases: straight, all alike off, each otherwise.
TYPED_TEST(KernelTraffic, OfCombiningIsTheLeast) {
  using T = TypeParam;
  for (const auto& [out, a, b] : {std::tuple{0, 0, 0}, {1, 1, 1}, {0, 1, 0}, {3, 0, 1}}) {
    SCOPED_TRACE(testing::Message() << "phases " << out << ", " << a << ", " << b);
    const Stream stream;
    const auto to = ones<T>(kElements, static_cast<std::size_t>(out));
    const auto x = ones<T>(kElements, static_cast<std::size_t>(a));
    const auto y = ones<T>(kElements, static_cast<std::size_t>(b));
    const double most = out == a && out == b ? kMost : kMostCrooked;
    const std::size_t bytes = kElements * sizeof(T);
    expect_few_sectors(3 * bytes,
                       [&] { reduce_on_device(to.view(), x.view(), ReduceOp::kMax, stream); });
    const ConstView in[] = {x.view(), y.view(), to.view()};
    expect_few_sectors(
        4 * bytes, [&] { combine_on_device(to.view(), in, ReduceOp::kAverage, stream); }, most);
    expect_few_sectors(2 * bytes, [&] { divide_on_device(x.view(), 3, stream); });
  }
}

template <class To, class From>
void expect_few_converting(std::size_t out, std::size_t in) {
  const Stream stream;
  const auto to = ones<To>(kElements, out);
  const auto from = ones<From>(kElements, in);
  expect_few_sectors(
      kElements * (sizeof(To) + sizeof(From)),
      [&] { convert_on_device(to.view(), from.view(), stream); }, out == in ? kMost : kMostCrooked);
}

TEST(KernelTrafficOf, ConvertingIsTheLeast) {
  for (const auto& [out, in] :
       {std::pair<std::size_t, std::size_t>{0, 0}, {1, 1}, {0, 3}, {2, 1}}) {
    SCOPED_TRACE(testing::Message() << "phases " << out << " and " << in);
    expect_few_converting<float, bfloat16>(out, in);
    expect_few_converting<half, float>(out, in);
  }
}

// Scales come from one sector for each warp, 4 or 8 bytes of it, hence more than the buffers hold.
TEST(KernelTrafficOf, QuantizingIsTheLeast) {
  for (const int block : {64, 128}) {
    const Stream stream;
    const auto floats = ones<float>(kElements, 0);
    const auto values = ones<std::int8_t>(kElements, 0);
    const auto scales = ones<float>(scale_count(kElements, block), 0);
    const Quantized by{.values = values.view(), .scales = scales.view(), .block = block};
    const std::size_t bytes = kElements * 5 + scales.view().size_bytes();
    expect_few_sectors(
        bytes, [&] { quantize_on_device(by, floats.view(), stream); }, 1.06);
    expect_few_sectors(
        bytes, [&] { dequantize_on_device(floats.view(), by, stream); }, 1.06);
  }
}

// Rows of 32 bytes, of 2 KiB and of 8 KiB in a random order; `phase` elements off on both sides,
// where what some lanes do first is what others do second, which the count takes for one.
TEST(KernelTrafficOf, MovingRowsIsTheLeast) {
  for (const auto& [columns, phase] :
       {std::pair<std::size_t, std::size_t>{8, 0}, {512, 0}, {512, 1}, {2048, 0}, {2048, 3}}) {
    SCOPED_TRACE(testing::Message() << "rows of " << columns << " float32, phase " << phase);
    const std::size_t rows = kElements / columns;
    std::vector<std::int32_t> order(rows);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(1));
    const Stream stream;
    RowCheck check(stream);
    const auto out = ones<float>(kElements, phase), in = ones<float>(kElements, phase);
    const test::DeviceArray<std::int32_t> index(order);
    const RowMove move{out.view(), in.view(), index.view(), columns};
    const std::size_t bytes = 2 * kElements * sizeof(float) + index.view().size_bytes();
    const double most = phase == 0 ? kMost : kMostCrooked;
    expect_few_sectors(
        bytes, [&] { gather_rows_on_device(move, check, stream); }, most);
    expect_few_sectors(
        bytes, [&] { scatter_rows_on_device(move, check, stream); }, most);
    check.fetch(stream);
    synchronize(stream);
    check.verify();
  }
}

}  // namespace
}  // namespace motley
