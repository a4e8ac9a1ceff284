// wide/file/checksum.h: whether bytes are what they were, at the speed of memory.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "wide/read/number.h"

namespace motley::wide {

// Changes for sure where bytes change within one word, else but once in 2^64. Eight numbers side by
// side, so that no multiplication waits for the one before.
inline std::uint64_t checksum(const void* data, std::size_t n) noexcept {
  std::array<std::uint64_t, 8> lanes{1, 2, 3, 4, 5, 6, 7, 8};
  const auto* const bytes = static_cast<const char*>(data);
  const auto add = [&lanes](const char* p) {
    for (std::size_t i = 0; i < 8; ++i) {
      lanes[i] = (std::rotl(lanes[i], 29) ^ load8(p + 8 * i)) * 0x9e3779b97f4a7c15u;
    }
  };
  std::size_t i = 0;
  for (; i + 64 <= n; i += 64) add(bytes + i);
  char rest[64] = {};
  if (i < n) std::memcpy(rest, bytes + i, n - i);
  add(rest);
  return hash_text(n, {reinterpret_cast<const char*>(lanes.data()), sizeof lanes});
}

}  // namespace motley::wide
