// The 16-bit types convert as the hardware does, for every value.
#include "comm/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace motley {
namespace {

bool same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<int>(a) == std::bit_cast<int>(b);
}

TEST(Half, ConvertsEveryValueToFloatExactly) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    half x;
    x.bits = static_cast<std::uint16_t>(bits);
    const auto expected = static_cast<float>(std::bit_cast<_Float16>(x.bits));
    ASSERT_TRUE(same(static_cast<float>(x), expected)) << bits;
    if (std::isnan(expected)) continue;
    ASSERT_EQ(half(expected).bits, bits);
  }
}

// A stride of 4,099 meets every exponent with many mantissas, ties among them.
TEST(Half, RoundsFloatsToNearestEven) {
  for (std::uint64_t bits = 0; bits < 1ull << 32; bits += 4099) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(static_cast<float>(half(value))));
    } else {
      ASSERT_EQ(half(value).bits, std::bit_cast<std::uint16_t>(static_cast<_Float16>(value)))
          << value;
    }
  }
  EXPECT_EQ(half(65519.996f).bits, 0x7bff);
  EXPECT_EQ(half(65520.0f).bits, 0x7c00);
  EXPECT_EQ(half(0x1p-25f).bits, 0);    // a tie, to even
  EXPECT_EQ(half(0x1.8p-24f).bits, 2);  // a tie, to even
}

TEST(BFloat16, RoundsToNearestEvenAndKeepsNaN) {
  EXPECT_EQ(static_cast<float>(bfloat16(1.0f)), 1.0f);
  EXPECT_EQ(bfloat16(0x1.01p0f).bits, 0x3f80);  // a tie, to even
  EXPECT_EQ(bfloat16(0x1.03p0f).bits, 0x3f82);  // a tie, to even
  EXPECT_EQ(bfloat16(0x1.0101p0f).bits, 0x3f81);
  EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isinf(static_cast<float>(bfloat16(std::numeric_limits<float>::max()))));
}

TEST(DType, KnowsItsSize) {
  EXPECT_EQ(size_bytes(dtype_of<double>), sizeof(double));
  EXPECT_EQ(size_bytes(dtype_of<bfloat16>), sizeof(bfloat16));
  EXPECT_EQ(size_bytes(dtype_of<std::int8_t>), 1u);
}

}  // namespace
}  // namespace motley
