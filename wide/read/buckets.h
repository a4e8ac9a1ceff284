// wide/read/buckets.h: numbers as categories (schema.h, `bucket`).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace motley::wide {

// The number of the category that x falls in.
std::int64_t bucket_of(double x);

// bucket_of() of whole numbers from 0 on, from a table. A range of floats, which share exponent and
// kBits bits of the mantissa, is narrower than any bucket but the first two, so that at most one
// bucket begins in it.
class WholeBuckets {
 public:
  static constexpr std::uint32_t kEnd = 100'000'000;  // of x: whole numbers of 8 digits

  // The one table there is.
  static const WholeBuckets& table();
  // For x below kEnd; as of the float nearest to x, as numbers of all cells are.
  std::int64_t of(std::uint32_t x) const noexcept {
    const std::uint32_t bits = std::max(std::bit_cast<std::uint32_t>(static_cast<float>(x)), kOne);
    const Range& range = ranges_[(bits - kOne) >> kShift];
    return range.below + (x != 0 && bits >= range.begin ? 1 : 0);
  }

 private:
  struct Range {
    std::uint32_t begin;  // of the bucket below + 1, as bits of a float; above all if there is none
    std::int32_t below;
  };
  static constexpr int kBits = 6;
  static constexpr int kShift = 23 - kBits;
  static constexpr std::uint32_t kOne = std::bit_cast<std::uint32_t>(1.0f);

  WholeBuckets();

  std::array<Range, std::size_t{27} << kBits> ranges_;
};

}  // namespace motley::wide
