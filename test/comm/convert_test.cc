// Copies that change the element type or scale: exact where the types allow, rounded once
// elsewhere.
#include "comm/convert.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace motley
