#include "wide/read/buckets.h"

#include <cmath>

namespace motley::wide {

std::int64_t bucket_of(double x) {
  const double size = std::abs(x);
  if (size <= 2) return static_cast<std::int64_t>(std::floor(x));
  const double log = std::log(size);
  const auto bucket = static_cast<std::int64_t>(2 + std::floor(log * log));
  return x < 0 ? -bucket : bucket;
}

const WholeBuckets& WholeBuckets::table() {
  static const WholeBuckets table;
  return table;
}

WholeBuckets::WholeBuckets() {
  const auto bucket = [](std::uint32_t bits) {
    return static_cast<std::int32_t>(bucket_of(static_cast<double>(std::bit_cast<float>(bits))));
  };
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    std::uint32_t low = kOne + (static_cast<std::uint32_t>(i) << kShift);
    std::uint32_t high = low + (std::uint32_t{1} << kShift) - 1;
    const std::int32_t first = bucket(low);
    ranges_[i] = {~std::uint32_t{0}, first};
    if (i == 0) ranges_[i] = {kOne, 0};  // 0 is here, too
    if (i == 0 || bucket(high) == first) continue;
    while (high - low > 1) {
      const std::uint32_t middle = low + (high - low) / 2;
      (bucket(middle) == first ? low : high) = middle;
    }
    ranges_[i].begin = high;
  }
}

}  // namespace motley::wide
