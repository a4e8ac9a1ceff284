// Copies that change the element type or scale: exact where the types allow, rounded once
// elsewhere; on a device the bits of the CPU.
#include "comm/convert.h"

#include <gtest/gtest.h>

#include <bit>

#include "comm/kernel/convert_parts.h"
#include "comm/kernel/cpu.h"
#include "test/support/device_array.h"
#include "test/support/elements.h"
#include "test/support/random_elements.h"

namespace motley {
namespace {

template <class T>
class Convert : public testing::Test {};
using ShortFloats = testing::Types<half, bfloat16>;
TYPED_TEST_SUITE(Convert, ShortFloats);

TYPED_TEST(Convert, ThereAndBackIsTheSameForEveryBitPatternButNaN) {
  std::vector<TypeParam> in(65'536), back(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) in[i].bits = static_cast<std::uint16_t>(i);
  std::vector<float> wide(in.size());
  convert(wide, in);
  convert(back, wide);
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (wide[i] != wide[i]) {
      EXPECT_NE(static_cast<float>(back[i]), static_cast<float>(back[i])) << i;
    } else {
      EXPECT_EQ(back[i].bits, in[i].bits) << i;
    }
  }
}

std::vector<ConvertPart (*)(DType, DType, double) noexcept> widths() {
  std::vector<ConvertPart (*)(DType, DType, double) noexcept> all = {&convert_part};
  if (vector_width() != VectorWidth::k128) all.push_back(&convert_256);
  return all;
}

// Every pattern of 16 bits, and any of 32; an odd number of them, so that some fill no vector.
TYPED_TEST(Convert, HasTheBitsOfOneElementAtATimeForVectorsOfEveryWidth) {
  using T = TypeParam;
  std::mt19937_64 random(19);
  std::vector<T> shorts(65'537), narrow(shorts.size());
  for (std::size_t i = 0; i < shorts.size(); ++i) shorts[i].bits = static_cast<std::uint16_t>(i);
  std::vector<float> floats = test::random_bits<float>(shorts.size(), random), wide(shorts.size());
  for (std::size_t i = 0; i < floats.size(); i += 3)  // at and beside what 16 bits can say
    floats[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(float(shorts[i])) +
                                     static_cast<std::uint32_t>(i % 5) - 2);
  const auto bits = [](float x) { return x != x ? 0 : std::bit_cast<std::uint32_t>(x); };
  for (const auto part_of : widths()) {
    for (const float factor : {1.0f, 0.3f}) {
      const auto apply = [&](View out, ConstView in) {
        const auto part = part_of(out.dtype, in.dtype, double{factor});
        return part(out.data, in.data, out.count, factor);
      };
      const std::size_t widened = apply(wide, shorts), narrowed = apply(narrow, floats);
      EXPECT_GE(widened + 16, wide.size());
      EXPECT_GE(narrowed + 16, narrow.size());
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < widened; ++i)
        wrong += bits(wide[i]) != bits(factor * float(shorts[i]));
      for (std::size_t i = 0; i < narrowed; ++i)
        wrong += bits(float(narrow[i])) != bits(float(T(factor * floats[i])));
      EXPECT_EQ(wrong, 0u) << "times " << factor;
    }
  }
}

TYPED_TEST(Convert, ScalesInFloatAndRoundsOnce) {
  const std::vector<TypeParam> in(3, TypeParam(3.0f));
  std::vector<float> wide(3);
  std::vector<TypeParam> narrow(3);
  convert(wide, in, 0.1);
  convert(narrow, in, 0.1);
  for (const float x : wide) EXPECT_EQ(x, 0.1f * 3.0f);
  for (const TypeParam x : narrow) EXPECT_EQ(x.bits, TypeParam(0.1f * 3.0f).bits);
}

TEST(ConvertSameType, CopiesAndScalesInPlace) {
  std::vector<double> data = {1, -2, 4};
  convert(data, data);
  EXPECT_EQ(data, (std::vector<double>{1, -2, 4}));
  convert(data, data, 0.5);
  EXPECT_EQ(data, (std::vector<double>{0.5, -1, 2}));
  const std::vector<std::int16_t> whole = {-5, 7};
  std::vector<std::int16_t> copy(2);
  convert(copy, whole);
  EXPECT_EQ(copy, whole);
  convert(View(nullptr, 0, DType::kFloat16), ConstView(nullptr, 0, DType::kFloat16));
}

// From and to buffers that lie otherwise, and in place.
template <class To, class From>
void check_on_device(const std::vector<From>& in, double factor) {
  std::vector<To> due(in.size());
  convert(due, in, factor);
  for (const auto& [to_phase, from_phase] : {std::pair{0, 0}, {1, 1}, {2, 5}, {7, 0}}) {
    const Stream stream;
    test::DeviceArray<From> from(in, static_cast<std::size_t>(from_phase));
    test::DeviceArray<To> to(std::vector<To>(in.size()), static_cast<std::size_t>(to_phase));
    convert_on_device(to.view(), from.view(), stream, factor);
    EXPECT_EQ(test::first_difference(to.values(stream), due), in.size())
        << in.size() << " times " << factor << ", phases " << to_phase << " and " << from_phase;
    EXPECT_TRUE(to.guarded());
    if constexpr (std::is_same_v<To, From>) {
      convert_on_device(from.view(), from.view(), stream, factor);
      EXPECT_EQ(test::first_difference(from.values(stream), due), in.size());
    }
  }
}

template <class T>
class ConvertTypes : public testing::Test {};
TYPED_TEST_SUITE(ConvertTypes, test::ElementTypes);

TYPED_TEST(ConvertTypes, GivesTheBitsOfTheCpuOnADevice) {
  if (device_count() == 0) GTEST_SKIP() << "no GPU, or no CUDA in this build";
  std::mt19937_64 random(14);
  for (const std::size_t n : {0, 1, 30, 4001}) {
    const auto in = test::random_bits<TypeParam>(n, random);
    check_on_device<TypeParam>(in, 1);
    if constexpr (!std::is_integral_v<TypeParam>) check_on_device<TypeParam>(in, 0.3);
  }
}

// More packs than a grid takes at once.
TEST(ConvertLong, BuffersInTurnsOnADevice) {
  if (device_count() == 0) GTEST_SKIP() << "no GPU, or no CUDA in this build";
  const std::size_t n = 4 * 4 * 2048 * 256 + 1001;
  const Stream stream;
  test::DeviceArray<float> from(std::vector<float>(n, 3)), to(std::vector<float>(n, 1));
  convert_on_device(to.view(), from.view(), stream, 0.5);
  const std::vector<float> values = to.values(stream);
  EXPECT_EQ(std::ranges::count(values, 1.5f), std::ssize(values));
}

TYPED_TEST(Convert, RoundsOnADeviceAsOnTheCpu) {
  if (device_count() == 0) GTEST_SKIP() << "no GPU, or no CUDA in this build";
  std::mt19937_64 random(15);
  for (const std::size_t n : {0, 1, 30, 20'001}) {
    for (const double factor : {1.0, 0.3}) {
      check_on_device<TypeParam>(test::random_bits<float>(n, random), factor);
      check_on_device<float>(test::random_bits<TypeParam>(n, random), factor);
    }
  }
}

}  // namespace
}  // namespace motley
