// comm/call_kind.h: the collectives that there are.
#pragma once

#include <cstdint>

namespace motley {

enum class CallKind : std::uint8_t { kAllReduce, kBroadcast, kBarrier };

constexpr const char* name(CallKind kind) noexcept {
  switch (kind) {
    case CallKind::kAllReduce:
      return "all_reduce";
    case CallKind::kBroadcast:
      return "broadcast";
    case CallKind::kBarrier:
      return "barrier";
  }
  return "unknown";
}

}  // namespace motley
