// How a call under way sees that its members make another one, or cut it up otherwise.
#include <fmt/format.h>

#include "comm/executor/describe.h"
#include "comm/executor/execution.h"

namespace motley {

// Fails the call where a block is not as long as its giver says: whoever passed its head on could
// not know.
bool Execution::counts_agree(const Lane& lane) {
  for (int from = 0; from < shape_.size; ++from) {
    Fingerprint ours = fingerprint_;
    Fingerprint theirs = fingerprint_;
    ours.count = call_.out_counts[static_cast<std::size_t>(from)];
    theirs.count = buffers_.said_count(lane.at, from);
    if (ours.count == theirs.count) continue;
    const int peer = call_.group->rank_at(from);
    fail_mismatch(disagreement(id(), transport_.rank(), ours, peer, theirs));
    return false;
  }
  return true;
}

// Where blocks differ, the two ends of a message must agree on its length in all pieces together;
// but for heads, whose blocks may be those of others.
Fingerprint Execution::fingerprint_of(const Lane& lane, const Step& step) const {
  Fingerprint f = fingerprint_;
  if (!varies(call_.kind) || buffers_.layout().is_heads(lane.at.piece)) return f;
  for (int i = 0; i < step.chunk_count; ++i)
    f.count += buffers_.layout().total(step.first_chunk + i);
  return f;
}

// Fails the call if the peer is in another call than we are, or cut it up otherwise.
bool Execution::agrees(const Lane& lane, const Step& step, const Tag& tag, std::size_t size) {
  const int peer = call_.group->rank_at(step.peer);
  const Fingerprint mine = fingerprint_of(lane, step);
  if (tag.fingerprint != mine) {
    fail_mismatch(disagreement(id(), transport_.rank(), mine, peer, tag.fingerprint));
    return false;
  }
  const std::size_t expected = buffers_.message_bytes(lane.at.piece, step);
  if (size != expected) {
    fail_mismatch(disagreement_with(
        peer, fmt::format("a message of {} bytes at rank {}, of {} bytes from rank {}: other "
                          "segment_bytes or another version of Motley",
                          expected, transport_.rank(), size, peer)));
    return false;
  }
  return true;
}

}  // namespace motley
