// comm/call_kind.h: the collectives that there are.
#pragma once

#include <cstddef>
#include <cstdint>

namespace motley {

enum class CallKind : std::uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllGatherV,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kAllToAll,
  kAllToAllV,
  kSendRecv,
  kBarrier,  // the last
};

inline constexpr int kCallKinds = static_cast<int>(CallKind::kBarrier) + 1;

constexpr const char* name(CallKind kind) noexcept {
  constexpr const char* kNames[kCallKinds] = {
      "all_reduce", "reduce_scatter", "all_gather", "all_gather_v", "broadcast", "reduce",
      "gather",     "scatter",        "all_to_all", "all_to_all_v", "send_recv", "barrier",
  };
  const auto index = static_cast<std::size_t>(kind);
  return index < kCallKinds ? kNames[index] : "unknown";
}

// Whether data are combined by a ReduceOp.
constexpr bool reduces(CallKind kind) noexcept {
  return kind == CallKind::kAllReduce || kind == CallKind::kReduceScatter ||
         kind == CallKind::kReduce;
}

// Whether one rank, the root, has a part of its own.
constexpr bool has_root(CallKind kind) noexcept {
  return kind == CallKind::kBroadcast || kind == CallKind::kReduce || kind == CallKind::kGather ||
         kind == CallKind::kScatter;
}

// Whether a rank's `in` is a block of somebody's `out`.
constexpr bool gathers(CallKind kind) noexcept {
  return kind == CallKind::kAllGather || kind == CallKind::kAllGatherV || kind == CallKind::kGather;
}

// Whether blocks may have different sizes, which only the ranks concerned know.
constexpr bool varies(CallKind kind) noexcept {
  return kind == CallKind::kAllGatherV || kind == CallKind::kAllToAllV;
}

}  // namespace motley
