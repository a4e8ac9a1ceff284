// comm/transport/shm_moves.h: which block of whose buffer goes where, in collectives that do not
// reduce. Blocks have `bytes` bytes each; `root` and ranks are indices among the members.
#pragma once

#include <cstddef>

#include "comm/call_kind.h"

namespace motley {

// Whether a member has something to give, or to get.
constexpr bool gives(CallKind kind, int member, int root) noexcept {
  const bool one = kind == CallKind::kBroadcast || kind == CallKind::kScatter;
  return kind != CallKind::kBarrier && (!one || member == root);
}
constexpr bool gets(CallKind kind, int member, int root) noexcept {
  return kind != CallKind::kBarrier && (kind != CallKind::kGather || member == root);
}

// Whether a member gives each of the others a block of its own, instead of one to all.
constexpr bool gives_each(CallKind kind) noexcept {
  return kind == CallKind::kAllToAll || kind == CallKind::kAllToAllV || kind == CallKind::kScatter;
}

// Where the block for member `to` begins in the giver's `in`.
constexpr std::size_t in_offset(CallKind kind, int to, std::size_t bytes) noexcept {
  return gives_each(kind) ? static_cast<std::size_t>(to) * bytes : 0;
}
// Where the block from member `from` begins in the getter's `out`.
constexpr std::size_t out_offset(CallKind kind, int from, std::size_t bytes) noexcept {
  const bool one = kind == CallKind::kBroadcast || kind == CallKind::kScatter;
  return one ? 0 : static_cast<std::size_t>(from) * bytes;
}

}  // namespace motley
