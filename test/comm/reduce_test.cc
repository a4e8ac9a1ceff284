// Reduction kernels against plain arithmetic, on the CPU and on a device: a real one, or the
// emulator's.
#include "comm/kernel/reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "comm/kernel/ops.h"
#include "test/support/elements.h"

namespace motley {
namespace {

template <class T>
std::vector<T> random_values(std::size_t n, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<T> values(n);
  for (T& value : values) value = test::element<T>(static_cast<int>(random() % 11) - 5);
  return values;
}

template <class T>
void on_cpu(std::vector<T>& out, const std::vector<T>& in, ReduceOp op) {
  reduce(out, std::as_bytes(std::span(in)), op);
}

template <class T>
void on_device(std::vector<T>& out, const std::vector<T>& in, ReduceOp op) {
  const DeviceBuffer a(out.size() * sizeof(T)), b(in.size() * sizeof(T));
  const View x = a.view(out.size(), dtype_of<T>), y = b.view(in.size(), dtype_of<T>);
  copy(x, out, {});
  copy(y, in, {});
  reduce_on_device(x, y, op, {});
  copy(out, x, {});
  synchronize({});
}

template <class T>
class Reduce : public testing::Test {
 protected:
  // 0: nothing; 1, 7: less than a vector; 1000: tails; 65'537: more than one grid of blocks.
  template <class Device>
  void matches_plain_arithmetic(Device device) {
    for (const std::size_t n : {0, 1, 7, 1000, 65'537}) {
      for (const auto op : {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax}) {
        const std::vector<T> in = random_values<T>(n, 1), before = random_values<T>(n, 2);
        std::vector<T> out = before;
        device(out, in, op);
        for (std::size_t i = 0; i < n; ++i) {
          const auto a = static_cast<float>(before[i]), b = static_cast<float>(in[i]);
          const float expected = op == ReduceOp::kSum       ? a + b
                                 : op == ReduceOp::kProduct ? a * b
                                 : op == ReduceOp::kMin     ? std::min(a, b)
                                                            : std::max(a, b);
          ASSERT_EQ(static_cast<float>(out[i]), expected) << name(op) << " at " << i << " of " << n;
        }
      }
    }
  }
};

TYPED_TEST_SUITE(Reduce, test::ElementTypes);

TYPED_TEST(Reduce, MatchesPlainArithmeticOnTheCpu) {
  this->matches_plain_arithmetic(on_cpu<TypeParam>);
}

TYPED_TEST(Reduce, MatchesPlainArithmeticOnTheDevice) {
  if (device_count() == 0) GTEST_SKIP() << "no GPU, or no CUDA in this build";
  this->matches_plain_arithmetic(on_device<TypeParam>);
}

TYPED_TEST(Reduce, DividesOnTheDeviceAsOnTheCpu) {
  if (device_count() == 0) GTEST_SKIP() << "no GPU, or no CUDA in this build";
  using T = TypeParam;
  for (const std::size_t n : {0, 1, 1000}) {
    std::vector<T> expected = random_values<T>(n, 3), got = expected;
    divide(expected, 3);
    const DeviceBuffer a(n * sizeof(T));
    const View x = a.view(n, dtype_of<T>);
    copy(x, got, {});
    divide_on_device(x, 3, {});
    copy(got, x, {});
    synchronize({});
    for (std::size_t i = 0; i < n; ++i)
      ASSERT_EQ(static_cast<float>(got[i]), static_cast<float>(expected[i])) << i << " of " << n;
  }
}

TEST(ReduceCpu, IntegersWrap) {
  std::vector<std::int32_t> a = {std::numeric_limits<std::int32_t>::max()};
  const std::vector<std::int32_t> one = {1};
  on_cpu(a, one, ReduceOp::kSum);
  EXPECT_EQ(a[0], std::numeric_limits<std::int32_t>::min());
  std::vector<std::int16_t> b = {-32768};
  const std::vector<std::int16_t> c = {-32768};
  on_cpu(b, c, ReduceOp::kProduct);
  EXPECT_EQ(b[0], 0);
}

TEST(ReduceCpu, NaNWinsInMinAndMax) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto op : {ReduceOp::kMin, ReduceOp::kMax}) {
    std::vector<float> a = {nan, 1};
    const std::vector<float> b = {1, nan};
    on_cpu(a, b, op);
    EXPECT_TRUE(std::isnan(a[0]) && std::isnan(a[1])) << name(op);
  }
}

TEST(ReduceCpu, TakesMessagesAtAnyAlignment) {
  std::vector<std::byte> message(1 + 3 * sizeof(double));
  const double values[] = {1, 2, 3};
  std::memcpy(message.data() + 1, values, sizeof values);
  std::vector<double> out = {10, 20, 30};
  reduce(out, ConstBytes(message).subspan(1), ReduceOp::kSum);
  EXPECT_THAT(out, testing::ElementsAre(11, 22, 33));
}

TEST(Divide, RoundsIntegersTowardZero) {
  std::vector<std::int32_t> a = {7, -7, 0};
  divide(a, 2);
  EXPECT_THAT(a, testing::ElementsAre(3, -3, 0));
  std::vector<float> b = {7, -7};
  divide(b, 2);
  EXPECT_THAT(b, testing::ElementsAre(3.5f, -3.5f));
}

}  // namespace
}  // namespace motley
