// comm/executor/slices.h: what the ways to average a group share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "comm/clock.h"

namespace motley {

inline Duration left_until(TimePoint deadline, Clock& clock) {
  return std::max(deadline - clock.now(), Duration(1));
}

// Elements that member i of p combines for all.
inline std::vector<std::size_t> slice_counts(std::size_t n, std::size_t p) {
  std::vector<std::size_t> counts(p, n / p);
  for (std::size_t i = 0; i < n % p; ++i) ++counts[i];
  return counts;
}

}  // namespace motley
