// How buffers are cut into packs: nothing is left out or taken twice, no word reaches beyond a
// buffer, whatever the alignments and counts, above 2^32 elements too. Addresses are only reckoned
// with.
#include "comm/kernel/cut.h"

#include <gtest/gtest.h>

#include <tuple>

namespace motley {
namespace {

// A view that is never looked into, `phase` elements behind a multiple of 64 bytes.
ConstView at_phase(std::size_t phase, std::size_t n, DType dtype) {
  return {reinterpret_cast<const std::byte*>((std::uintptr_t{1} << 40) + phase * size_bytes(dtype)),
          n, dtype};
}

// What cut.h promises of one source (or of `out`, which is never crooked).
void expect_words_inside(const Cut& by, const ConstView& view) {
  if (by.packs == 0) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(view.data);
  const std::size_t element = size_bytes(view.dtype), word = by.pack * element;
  const auto first = begin + by.head * element;
  const std::size_t crook = first % word;
  const std::uintptr_t low = first - crook;
  EXPECT_GE(low, begin);
  EXPECT_LE(low + (by.packs + (crook != 0)) * word, begin + view.size_bytes());
}

using Case = std::tuple<DType, std::size_t>;
class CutBuffers : public testing::TestWithParam<Case> {};

TEST_P(CutBuffers, LeavesNothingOutAndStaysInside) {
  const auto [dtype, n] = GetParam();
  const std::size_t pack = 16 / size_bytes(dtype);
  for (std::size_t to = 0; to < 2 * pack; ++to) {
    for (std::size_t from = 0; from < pack; ++from) {
      const ConstView out = at_phase(to, n, dtype);
      const ConstView in[] = {at_phase(from, n, dtype), out, at_phase((from + 5) % pack, n, dtype)};
      const Cut by = cut(out, in, pack);
      SCOPED_TRACE(testing::Message() << n << " elements, phases " << to << " and " << from);
      EXPECT_EQ(by.n, n);
      EXPECT_LT(by.single(), 6 * pack);
      EXPECT_TRUE(by.packs != 0 || n < 6 * pack);
      EXPECT_TRUE(by.packs == 0 || (to + by.head) % (2 * pack) == 0);
      for (const ConstView& view : in) expect_words_inside(by, view);
      // Singles, in order, are [0, head) and [head + packs * pack, n).
      for (std::size_t k = 0; k < by.single(); ++k) {
        const std::size_t behind = by.packs == 0 ? k : n - by.single() + k;
        EXPECT_EQ(by.single_at(k), k < by.head ? k : behind);
      }
    }
  }
}

// 0, 1: nothing, one. 5 to 130: with few packs or none. The last: beyond 32 bits.
INSTANTIATE_TEST_SUITE_P(Sizes, CutBuffers,
                         testing::Combine(testing::Values(DType::kInt8, DType::kBFloat16,
                                                          DType::kFloat32, DType::kFloat64),
                                          testing::Values(0, 1, 5, 16, 31, 47, 64, 130,
                                                          (std::size_t{1} << 33) + 7)));

TEST(CutBuffers, KeepsBuffersThatLieAlikeStraight) {
  const ConstView out = at_phase(3, 100, DType::kFloat32), in = at_phase(7, 100, DType::kFloat32);
  const Cut by = cut(out, {&in, 1}, 4);
  EXPECT_EQ(by.head, 5u);
  EXPECT_EQ(by.packs, 23u);
  EXPECT_EQ(by.single(), 8u);
}

// float32 out, bfloat16 in: a pack is four elements, 16 bytes of the one and 8 of the other.
TEST(CutBuffers, TakesElementsOfTwoSizes) {
  for (std::size_t phase = 0; phase < 4; ++phase) {
    const ConstView out = at_phase(1, 1000, DType::kFloat32);
    const ConstView in = at_phase(phase, 1000, DType::kBFloat16);
    const Cut by = cut(out, {&in, 1}, 4);
    expect_words_inside(by, out);
    expect_words_inside(by, in);
    EXPECT_GE(by.packs, 245u);
  }
}

}  // namespace
}  // namespace motley
