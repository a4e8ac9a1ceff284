// Small collectives: everybody shows all it has, and takes from what the others show.
#include <algorithm>
#include <cstring>

#include "comm/kernel/combine.h"
#include "comm/transport/shm_moves.h"
#include "comm/transport/shm_team.h"

namespace motley {
namespace {

// Bytes at the beginning of a line that say the weight of what follows.
std::size_t weight_bytes(const Fingerprint& call) noexcept {
  return call.op == ReduceOp::kWeightedSum && reduces(call.kind) ? sizeof(double) : 0;
}

}  // namespace

// What has room in the line of its key is shown before anything else is done about the call, as the
// others wait for it; all the rest goes on while theirs is on its way. Needs the seat at which the
// others look first.
bool ShmTeam::show_early(const ShmRun& run, const TeamCall& call) noexcept {
  const Fingerprint& what = call.fingerprint;
  const std::size_t bytes = call.in.size_bytes();
  if (!spins_ || bytes > ShmBoard::kMoreBytes || has_root(what.kind) || weight_bytes(what) != 0 ||
      way_of(what.kind, what.count * size_bytes(what.dtype), call.group->size()) !=
          ShmRun::Way::kAtOnce) {
    return false;
  }
  Seat& mine = seats_[static_cast<std::size_t>(run.hint)];
  if (mine.state != Seat::kFree) return false;
  mine.state = Seat::kBusy;
  mine.key = run.key;
  const bool in_line = bytes <= ShmSeat::kLineBytes;
  if (!in_line) std::memcpy(board_->more[run.hint], call.in.data, bytes);
  show(run.key, run.hint, call, {call.in.data, in_line ? bytes : 0});
  return true;
}

// Once our part can be seen, so can those of others that came with us: asks for all their lines, of
// which the loads would ask only when they have seen the keys.
void ShmTeam::fetch_ahead(const ShmRun& run) const noexcept {
  const Fingerprint& call = run.call.fingerprint;
  const std::size_t all = run.call.in.size_bytes();
  if (all <= ShmSeat::kOneLineBytes) return;
  const bool in_line = all <= ShmSeat::kLineBytes;
  const bool parts = gives_each(call.kind) || call.kind == CallKind::kReduceScatter;
  const std::size_t bytes = parts ? all / static_cast<std::size_t>(run.size) : all;
  const std::size_t begin = parts ? static_cast<std::size_t>(run.me) * bytes : 0;
  for (const ShmRun::Member& member : run.members) {
    if (member.rank == rank_) continue;
    const ShmBoard& board = *peer(member.rank).board;
    if (in_line) {
      __builtin_prefetch(board.seats[run.hint].line + ShmSeat::kOneLineBytes);
      continue;
    }
    const std::byte* const from = board.more[run.hint] + begin;
    for (std::size_t at = 0; at < bytes; at += kCacheLine) __builtin_prefetch(from + at);
  }
}

// So that the next call finds its seat free.
void ShmTeam::make_room_after(const ShmRun& run) noexcept {
  const auto next = static_cast<std::size_t>((run.hint + 1) % ShmBoard::kSeats);
  if (seats_[next].state != Seat::kFree) sweep();
}

void ShmTeam::show_at_once(ShmRun& run) {
  const Fingerprint& call = run.call.fingerprint;
  const std::size_t bytes = run.call.in.size_bytes();
  if (!reduces(call.kind) && !gives(call.kind, run.me, static_cast<int>(call.root))) return;
  if (bytes == 0) return;
  const std::size_t skip = weight_bytes(call);
  if (skip == 0 && bytes <= ShmSeat::kLineBytes) {  // the usual case, in one copy
    run.line_from = run.call.in.data;
    run.line_bytes = bytes;
    return;
  }
  std::memcpy(run.line, &run.call.weight, skip);
  run.line_bytes = skip + sizeof(std::uint64_t);
  if (bytes + skip <= ShmSeat::kLineBytes) {
    std::memcpy(run.line + skip, run.call.in.data, bytes);
    run.line_bytes = skip + bytes;
    return;
  }
  if (bytes <= ShmBoard::kMoreBytes) {
    std::memcpy(board_->more[run.seat], run.call.in.data, bytes);
    return;
  }
  keep_slots(run, bytes);
  const auto offset = static_cast<std::uint64_t>(run.slots - heap_->base());
  std::memcpy(run.line + skip, &offset, sizeof(offset));
  stores_.copy(run.slots, run.call.in.data, bytes);
  stores_.finish();
}

bool ShmTeam::at_once(ShmRun& run) {
  if (!find_all(run)) return false;
  finish_at_once(run);
  run.state = TeamRun::State::kDone;
  return true;
}

// Where member `index` shows its whole `in`, of `bytes` bytes.
const std::byte* ShmTeam::shown_at_once(const ShmRun& run, int index, std::size_t bytes) const {
  const std::size_t skip = weight_bytes(run.call.fingerprint);
  const ShmRun::Member& member = run.members[static_cast<std::size_t>(index)];
  const std::byte* const line = member.seat->line + skip;
  if (bytes + skip <= ShmSeat::kLineBytes) return line;
  if (bytes <= ShmBoard::kMoreBytes) return peer(member.rank).board->more[member.at];
  std::uint64_t offset = 0;
  std::memcpy(&offset, line, sizeof(offset));
  return heap_at(run, index, offset, bytes);
}

void ShmTeam::finish_at_once(ShmRun& run) {
  const Fingerprint& call = run.call.fingerprint;
  const std::size_t all = call.count * size_bytes(call.dtype);
  const int root = static_cast<int>(call.root);
  if (all == 0) return;
  // All givers show equally much: their whole `in`.
  const bool blocks = call.kind != CallKind::kAllReduce && call.kind != CallKind::kReduce &&
                      call.kind != CallKind::kBroadcast;
  const std::size_t block = blocks ? all / static_cast<std::size_t>(run.size) : all;
  const bool each = gives_each(call.kind) || call.kind == CallKind::kReduceScatter;
  const std::size_t shown = each ? all : block;
  if (!reduces(call.kind)) {
    for (int from = 0; from < run.size; ++from) {
      if (!gives(call.kind, from, root) || !gets(call.kind, run.me, root)) continue;
      std::memcpy(run.call.out.data + out_offset(call.kind, from, block),
                  shown_at_once(run, from, shown) + in_offset(call.kind, run.me, block), block);
    }
    return;
  }
  if (call.kind == CallKind::kReduce && run.me != root) return;
  const std::size_t skip =
      call.kind == CallKind::kReduceScatter ? static_cast<std::size_t>(run.me) * block : 0;
  sources_.resize(static_cast<std::size_t>(run.size));
  const bool weighs = weight_bytes(call) != 0;
  if (weighs) weights_.resize(static_cast<std::size_t>(run.size));
  for (int i = 0; i < run.size; ++i) {
    const auto at = static_cast<std::size_t>(i);
    sources_[at] = (i == run.me ? run.call.in.data : shown_at_once(run, i, shown)) + skip;
    if (weighs) std::memcpy(&weights_[at], run.members[at].seat->line, sizeof(double));
  }
  const Combine& combine = combine_of(call);
  combine(run.call.out.data, sources_.data(), run.size, block / size_bytes(call.dtype),
          weights_.data());
}

}  // namespace motley
