// How buffers are cut into packs: nothing is left out or taken twice, packs begin at a sector,
// whatever the alignments and counts, above 2^32 elements too. Addresses are only reckoned with.
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

using Case = std::tuple<DType, std::size_t>;
class CutBuffers : public testing::TestWithParam<Case> {};

TEST_P(CutBuffers, LeavesNothingOutAndBeginsAtASector) {
  const auto [dtype, n] = GetParam();
  const std::size_t pack = 16 / size_bytes(dtype);
  for (std::size_t phase = 0; phase < 2 * pack; ++phase) {
    const Cut by = cut(at_phase(phase, n, dtype), pack);
    SCOPED_TRACE(testing::Message() << n << " elements, phase " << phase);
    EXPECT_EQ(by.n, n);
    EXPECT_LT(by.single(), 3 * pack);
    EXPECT_TRUE(by.packs != 0 || n < 3 * pack);
    EXPECT_TRUE(by.packs == 0 || (phase + by.head) % (2 * pack) == 0);
    // Singles, in order, are [0, head) and [head + packs * pack, n).
    for (std::size_t k = 0; k < by.single(); ++k) {
      const std::size_t behind = by.packs == 0 ? k : n - by.single() + k;
      EXPECT_EQ(by.single_at(k), k < by.head ? k : behind);
    }
  }
}

// 0, 1: nothing, one. 5 to 130: with few packs or none. The last: beyond 32 bits.
INSTANTIATE_TEST_SUITE_P(Sizes, CutBuffers,
                         testing::Combine(testing::Values(DType::kInt8, DType::kBFloat16,
                                                          DType::kFloat32, DType::kFloat64),
                                          testing::Values(0, 1, 5, 16, 31, 47, 64, 130,
                                                          (std::size_t{1} << 33) + 7)));

TEST(CutBuffers, TakesSingleElementsUpToTheFirstSectorAndBehindTheLastPack) {
  const Cut by = cut(at_phase(3, 100, DType::kFloat32), 4);
  EXPECT_EQ(by.head, 5u);
  EXPECT_EQ(by.packs, 23u);
  EXPECT_EQ(by.single(), 8u);
}

}  // namespace
}  // namespace motley
