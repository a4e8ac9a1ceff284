// Large collectives that do not reduce: members take blocks from where the others have them.
//
// From buffers that they see, they take them there. Otherwise a member lays out piece k of its
// blocks while the others take piece k - 1; two slots take turns, so nobody lays out piece k before
// all have taken piece k - 2. In place that is safe too: what arrives overwrites pieces that have
// been laid out.
#include <algorithm>
#include <cstring>

#include "comm/kernel/combine.h"
#include "comm/transport/shm_moves.h"
#include "comm/transport/shm_team.h"

namespace motley {
namespace {

// Piece `k` of a block: where it begins, and its bytes.
std::size_t piece_begin(const ShmRun& run, std::uint32_t k) noexcept {
  return std::min(run.block, k * run.piece);
}
std::size_t piece_bytes(const ShmRun& run, std::uint32_t k) noexcept {
  return std::min(run.piece, run.block - piece_begin(run, k));
}

std::size_t slot_offset(const ShmRun& run, std::uint32_t k, int to) noexcept {
  const bool each = gives_each(run.call.fingerprint.kind);
  const auto slots = static_cast<std::size_t>(each ? run.size : 1);
  const auto slot =
      static_cast<std::size_t>(k % 2) * slots + static_cast<std::size_t>(each ? to : 0);
  return slot * run.piece;
}

int root_of(const ShmRun& run) noexcept { return static_cast<int>(run.call.fingerprint.root); }

}  // namespace

bool ShmTeam::exchange(ShmRun& run) {
  const CallKind kind = run.call.fingerprint.kind;
  const bool lays_out =
      gives(kind, run.me, root_of(run)) && run.offer.in == ShmRun::Offer::kPrivate;
  bool moved = false;
  if (lays_out && run.given == 0) moved = give_blocks(run);
  if (!run.decided) {
    if (!find_all(run)) return moved;
    run.decided = moved = true;
  }
  for (; run.done < run.pieces; ++run.done, run.step = 0, moved = true) {
    while (lays_out && run.given < std::min(run.done + 2, run.pieces)) {
      if (run.given >= 2 && !all_have(run, &ShmSeat::taken, run.given - 1)) return moved;
      moved |= give_blocks(run);
    }
    for (; run.step < run.size; ++run.step, moved = true) {
      if (!take_block(run, (run.me + run.step) % run.size)) return moved;
    }
    publish(run, &ShmSeat::taken, run.done + 1);
  }
  streams_done();
  // Others may still read our buffer.
  if (run.offer.in != ShmRun::Offer::kPrivate && !all_have(run, &ShmSeat::taken, run.pieces)) {
    return moved;
  }
  run.state = TeamRun::State::kDone;
  return true;
}

// Lays out the next piece of all that we have to give.
bool ShmTeam::give_blocks(ShmRun& run) {
  const CallKind kind = run.call.fingerprint.kind;
  const int blocks = gives_each(kind) ? run.size : 1;
  if (run.slots == nullptr) keep_slots(run, 2 * static_cast<std::size_t>(blocks) * run.piece);
  for (int j = 0; j < blocks; ++j) {
    const int to = (run.me + 1 + j) % run.size;
    if (blocks > 1 && to == run.me) continue;
    const std::byte* const from =
        run.call.in.data + in_offset(kind, to, run.block) + piece_begin(run, run.given);
    copy_stream(run.slots + slot_offset(run, run.given, to), from, piece_bytes(run, run.given));
  }
  streams_done();
  publish(run, &ShmSeat::given, ++run.given);
  return true;
}

// Takes the piece under way of the block that member `from` has for us, if it has any; false if it
// is not there yet.
bool ShmTeam::take_block(ShmRun& run, int from) {
  const CallKind kind = run.call.fingerprint.kind;
  const std::uint32_t k = run.done;
  if (!gives(kind, from, root_of(run)) || !gets(kind, run.me, root_of(run))) return true;
  std::byte* const to = run.call.out.data + out_offset(kind, from, run.block) + piece_begin(run, k);
  const std::size_t bytes = piece_bytes(run, k);
  const std::size_t in = in_offset(kind, run.me, run.block) + piece_begin(run, k);
  if (from == run.me) {
    if (run.call.in.data + in != to) copy_out(run, to, run.call.in.data + in, bytes);
    return true;
  }
  const ShmRun::Offer offer = offer_of(run, from);
  if (offer.in != ShmRun::Offer::kPrivate) {
    copy_out(run, to, heap_of(run, from) + offer.in + in, bytes);
    return true;
  }
  if (!has(run, from, &ShmSeat::given, k + 1)) return false;
  copy_out(run, to, slots_of(run, from) + slot_offset(run, k, run.me), bytes);
  return true;
}

}  // namespace motley
