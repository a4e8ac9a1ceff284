// int8 with a scale for each block: errors stay within the bound of the header, special values and
// the smallest and largest numbers come back as it says, and a device gives the bits of the CPU.
#include "comm/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "test/support/device_array.h"
#include "test/support/elements.h"
#include "test/support/random_elements.h"

namespace motley {
namespace {

struct Host {
  std::vector<std::int8_t> values;
  std::vector<float> scales;
};

template <class T>
Host quantized_on_cpu(const std::vector<T>& in, int block) {
  Host host{std::vector<std::int8_t>(in.size()), std::vector<float>(scale_count(in.size(), block))};
  quantize({.values = host.values, .scales = host.scales, .block = block}, in);
  return host;
}

template <class T>
std::vector<T> there_and_back(const std::vector<T>& in, int block) {
  Host host = quantized_on_cpu(in, block);
  std::vector<T> out(in.size());
  dequantize(out, {.values = host.values, .scales = host.scales, .block = block});
  return out;
}

// Normal deviates times 2^k, k from -140 to 120 by block of 64, so that scales of all sizes occur.
std::vector<float> deviates(std::size_t n, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) {
    const int power = static_cast<int>(i / 64 * 37 % 261) - 140;
    x[i] = std::ldexp(normal(random), power);
  }
  return x;
}

class Quantize : public testing::TestWithParam<int> {};

// 0, 1, 63, 65: nothing, less than a block, a block and one more.
TEST_P(Quantize, KeepsTheErrorWithinHalfAStep) {
  const int block = GetParam();
  for (const std::size_t n : {0, 1, 63, 65, 1000, 40'000}) {
    const std::vector<float> in = deviates(n, 1);
    const Host host = quantized_on_cpu(in, block);
    const std::vector<float> out = there_and_back(in, block);
    for (std::size_t i = 0; i < n; ++i) {
      const double scale = host.scales[i / static_cast<std::size_t>(block)];
      EXPECT_NE(host.values[i], -128);
      ASSERT_LE(std::abs(double{in[i]} - double{out[i]}), (0.5 + 0x1p-15) * scale)
          << in[i] << " came back as " << out[i] << ", element " << i;
    }
  }
}

// A last block that is shorter is done one element at a time: with zeros behind it the same comes
// out, for every element in turn the largest.
TEST_P(Quantize, GivesWholeBlocksTheBitsOfOneElementAtATime) {
  const int block = GetParam();
  const auto size = static_cast<std::size_t>(block);
  std::mt19937_64 random(20);
  for (std::size_t largest = 0; largest + 1 < size; ++largest) {
    std::vector<float> in = test::random_bits<float>(size, random);
    for (float& x : in) x = std::isfinite(x) ? x : 1;
    in[largest] = 0x1.fffffep127f;
    in.back() = 0;
    const Host whole = quantized_on_cpu(in, block);
    const std::vector<float> out = there_and_back(in, block);
    in.pop_back();
    const Host one_by_one = quantized_on_cpu(in, block);
    EXPECT_EQ(whole.scales, one_by_one.scales);
    EXPECT_TRUE(
        std::equal(one_by_one.values.begin(), one_by_one.values.end(), whole.values.begin()));
    const std::vector<float> shorter = there_and_back(in, block);
    EXPECT_TRUE(std::equal(shorter.begin(), shorter.end(), out.begin()));
  }
}

TEST_P(Quantize, ScalesByTheLargestOfEachBlock) {
  const int block = GetParam();
  const auto size = static_cast<std::size_t>(block);
  std::vector<float> in(2 * size + 1, 1);
  in[3] = -254;
  in[size] = 127;
  in[2 * size] = 6.35f;
  const Host host = quantized_on_cpu(in, block);
  EXPECT_THAT(host.scales, testing::ElementsAre(2, 1, 6.35f / 127));
  EXPECT_EQ(host.values[0], 0);  // half a step: to even
  EXPECT_EQ(host.values[3], -127);
  EXPECT_EQ(host.values[size + 1], 1);
  EXPECT_EQ(host.values[2 * size], 127);
}

TEST_P(Quantize, SaysWhatBecomesOfZerosNanInfinityAndTheSmallest) {
  const int block = GetParam();
  const auto size = static_cast<std::size_t>(block);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kLeast = std::numeric_limits<float>::denorm_min();
  constexpr float kMost = std::numeric_limits<float>::max();
  std::vector<float> in(5 * size, -0.0f);
  in[size + 7] = std::nanf("");
  in[2 * size + 7] = -kInfinity;
  in[3 * size] = kLeast;
  in[4 * size] = kMost;
  const Host host = quantized_on_cpu(in, block);
  const std::vector<float> out = there_and_back(in, block);
  EXPECT_EQ(host.scales[0], 0);
  EXPECT_TRUE(std::isnan(host.scales[1]) && std::isnan(host.scales[2]));
  EXPECT_EQ(host.scales[3], 0x1p-126f);
  for (std::size_t i = 0; i < size; ++i) {
    EXPECT_TRUE(out[i] == 0 && !std::signbit(out[i]));
    EXPECT_TRUE(std::isnan(out[size + i]) && std::isnan(out[2 * size + i]));
    EXPECT_EQ(host.values[size + i], 0);
    EXPECT_EQ(out[3 * size + i], 0);
  }
  EXPECT_FLOAT_EQ(out[4 * size], kMost);
}

INSTANTIATE_TEST_SUITE_P(Blocks, Quantize, testing::Values(64, 128));

template <class T>
class QuantizeTypes : public testing::Test {};
using Floats = testing::Types<float, half, bfloat16>;
TYPED_TEST_SUITE(QuantizeTypes, Floats);

// What is exact in float: multiples of the scale, which a 16-bit float holds too.
TYPED_TEST(QuantizeTypes, KeepWhatIsExact) {
  std::vector<TypeParam> in;
  for (int i = -127; i <= 127; ++i) in.push_back(test::element<TypeParam>(i));
  in.push_back(test::element<TypeParam>(127));
  const auto out = there_and_back(in, 128);
  EXPECT_EQ(test::first_difference(out, in), in.size());
}

template <class T>
void check_on_device(const std::vector<T>& in, int block, std::size_t phase) {
  const Host due = quantized_on_cpu(in, block);
  const Stream stream;
  test::DeviceArray<T> from(in, phase), back(std::vector<T>(in.size()), phase);
  test::DeviceArray<std::int8_t> values(std::vector<std::int8_t>(in.size()), 4 * phase);
  test::DeviceArray<float> scales(std::vector<float>(scale_count(in.size(), block)));
  const Quantized by{.values = values.view(), .scales = scales.view(), .block = block};
  quantize_on_device(by, from.view(), stream);
  EXPECT_EQ(values.values(stream), due.values);
  EXPECT_EQ(test::first_difference(scales.values(stream), due.scales), due.scales.size());
  dequantize_on_device(back.view(), by, stream);
  EXPECT_EQ(test::first_difference(back.values(stream), there_and_back(in, block)), in.size());
  EXPECT_TRUE(values.guarded() && scales.guarded() && back.guarded());
}

// Blocks of special values, of deviates and of none. Phases: four at once, and one by one.
TYPED_TEST(QuantizeTypes, GiveTheBitsOfTheCpuOnADevice) {
  if (device_count() == 0) GTEST_SKIP() << "no GPU, or no CUDA in this build";
  std::mt19937_64 random(17);
  for (const std::size_t n : {0, 1, 63, 65, 1000, 5003}) {
    std::vector<TypeParam> in = test::random_bits<TypeParam>(n, random);
    const std::vector<float> some = deviates(n, 2);
    for (std::size_t i = 200; i < n; ++i) in[i] = static_cast<TypeParam>(some[i]);
    for (const int block : {64, 128}) {
      for (const std::size_t phase : {0, 1}) check_on_device(in, block, phase);
    }
  }
}

// More elements than a grid takes at once.
TEST(QuantizeLong, BuffersInTurnsOnADevice) {
  if (device_count() == 0) GTEST_SKIP() << "no GPU, or no CUDA in this build";
  check_on_device(deviates(4 * 2048 * 256 + 1001, 3), 64, 0);
}

}  // namespace
}  // namespace motley
