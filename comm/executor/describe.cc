#include "comm/executor/describe.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/algorithm/families.h"

namespace motley {

std::string who(const Transport& transport, const Call& call, const char* algorithm) {
  std::string text = fmt::format("rank {} of {}: {} #{}", transport.rank(), transport.size(),
                                 name(call.kind), call.number);
  const GroupTag& tag = call.group->tag();
  if (tag.is_pair()) {
    text += fmt::format(" from rank {} to {}", call.group->rank_at(0), call.group->rank_at(1));
  } else if (tag.id != 0) {
    text += fmt::format(" of group {}.{}", tag.id & ~GroupTag::kControllerBit, tag.attempt);
  }
  if (call.kind == CallKind::kBarrier) return text;
  return text + fmt::format(" ({}, {} {})", algorithm,
                            varies(call.kind) ? call.in.count : call.agreed_count(),
                            name(call.out.dtype));
}

std::string to_text(const Fingerprint& f) {
  std::string text = name(f.kind);
  if (f.kind == CallKind::kBarrier) return text;
  text += fmt::format(" of count {} {}", f.count, name(f.dtype));
  if (reduces(f.kind)) text += fmt::format(", {}", name(f.op));
  if (has_root(f.kind)) text += fmt::format(", root {}", f.root);
  const auto& families = algorithms_of(f.kind);
  if (f.algorithm >= families.size()) return text + " (as a whole)";
  return text + fmt::format(" ({}, {} pieces)", families[f.algorithm].name, f.pieces);
}

Error disagreement(const std::string& who, const Fingerprint& ours, const Fingerprint& theirs,
                   int peer) {
  return Error(ErrorCode::kMismatch,
               fmt::format("{} disagrees with rank {}: {} here, {} there. All members must make "
                           "the same call with the same count, dtype and op.",
                           who, peer, to_text(ours), to_text(theirs)),
               {peer});
}

Error loss(const std::string& who, int rank, const std::string& why) {
  return Error(
      ErrorCode::kPeerLost,
      fmt::format("{} lost rank {}: {}. No call with that rank can complete.", who, rank, why),
      {rank});
}

Error abortion(const std::string& who, const std::string& why) {
  return Error(ErrorCode::kAborted, fmt::format("{} was given up: {}.", who, why));
}

Error lateness(const std::string& who, const Call& call, TimePoint now, const std::string& waiting,
               const std::vector<int>& ranks) {
  return Error(
      ErrorCode::kTimeout,
      fmt::format("{} timed out after {:.1f} s (allowed {:.1f} s) {}. Check rank{} {}, or "
                  "raise the timeout.",
                  who, to_seconds(now - call.started), to_seconds(call.deadline - call.started),
                  waiting, ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", ")),
      ranks);
}

}  // namespace motley
