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

// Whether members show blocks for all, not one of their own.
bool shows_all(CallKind kind) noexcept {
  return kind == CallKind::kAllReduce || kind == CallKind::kReduce ||
         kind == CallKind::kBroadcast || kind == CallKind::kReduceScatter || gives_each(kind);
}

// How often a call that was shown early is looked for before its progress is noted.
constexpr int kEarlyLooks = 32;

}  // namespace

// What has room in the line of its key is shown before anything else is done about the call, as the
// others wait for it; all the rest goes on while theirs is on its way. Needs the seat at which the
// others look first.
bool ShmTeam::show_early(std::uint64_t key, int hint, const TeamCall& call) noexcept {
  const Fingerprint& what = call.fingerprint;
  const std::size_t bytes = call.in.size_bytes();
  if (!spins_ || bytes > ShmBoard::kMoreBytes || has_root(what.kind) || weight_bytes(what) != 0 ||
      way_of(what.kind, what.count * size_bytes(what.dtype), call.group->size()) !=
          ShmRun::Way::kAtOnce) {
    return false;
  }
  Seat& mine = seats_[static_cast<std::size_t>(hint)];
  if (mine.state != Seat::kFree) return false;
  mine.state = Seat::kBusy;
  mine.key = key;
  const bool in_line = bytes <= ShmSeat::kLineBytes;
  if (!in_line) std::memcpy(board_->more[hint], call.in.data, bytes);
  show(key, hint, call, {call.in.data, in_line ? bytes : 0});
  return true;
}

// `shown` says where a member shows its `in`. Our own is not taken from there: whoever has read
// what we wrote may have that line now.
template <class Shown>
void ShmTeam::finish_at_once(const TeamCall& what, int me, const Shown& shown) {
  const Fingerprint& call = what.fingerprint;
  const std::size_t all = call.count * size_bytes(call.dtype);
  const int size = what.group->size();
  const int root = static_cast<int>(call.root);
  if (all == 0) return;
  const bool blocks = call.kind != CallKind::kAllReduce && call.kind != CallKind::kReduce &&
                      call.kind != CallKind::kBroadcast;
  const std::size_t block = blocks ? all / static_cast<std::size_t>(size) : all;
  if (!reduces(call.kind)) {
    if (!gets(call.kind, me, root)) return;
    const std::size_t skip = in_offset(call.kind, me, block);
    const auto take = [&](int from, const std::byte* all_of_it) {
      std::byte* const to = what.out.data + out_offset(call.kind, from, block);
      if (to != all_of_it + skip) std::memcpy(to, all_of_it + skip, block);
    };
    if (gives(call.kind, me, root)) take(me, what.in.data);
    for (int from = 0; from < size; ++from) {
      if (from != me && gives(call.kind, from, root)) take(from, shown(from));
    }
    return;
  }
  if (call.kind == CallKind::kReduce && me != root) return;
  const std::size_t skip =
      call.kind == CallKind::kReduceScatter ? static_cast<std::size_t>(me) * block : 0;
  sources_.resize(static_cast<std::size_t>(size));
  for (int i = 0; i < size; ++i)
    sources_[static_cast<std::size_t>(i)] = (i == me ? what.in.data : shown(i)) + skip;
  const Combine& combine = combine_of(call);
  combine(what.out.data, sources_.data(), size, block / size_bytes(call.dtype), weights_.data());
}

// Looks for a moment for the others where they show what they have. Where all do the call is over:
// nothing is noted of it but what frees its seat.
bool ShmTeam::over_early(std::uint64_t key, int hint, const TeamCall& call) {
  const Group& group = *call.group;
  Seat& mine = seats_[static_cast<std::size_t>(hint)];
  mine.members.resize(static_cast<std::size_t>(group.size()));
  int found = 0;
  for (int look = 1; found < group.size(); ++look) {
    const int rank = group.rank_at(found);
    if (const std::uint32_t ticket = ticket_shown(rank, key, hint); ticket != 0) {
      mine.members[static_cast<std::size_t>(found++)] = {rank, hint, ticket, nullptr};
    } else if (look >= kEarlyLooks) {
      return false;
    } else {
      pause_between_looks(group, look);
    }
  }
  for (const ShmRun::Member& member : mine.members)
    peer(member.rank).used[static_cast<std::size_t>(hint)] = member.ticket;
  const bool in_line = call.in.size_bytes() <= ShmSeat::kLineBytes;
  finish_at_once(call, group.index_of(rank_), [&](int index) -> const std::byte* {
    const ShmBoard& board = *peer(group.rank_at(index)).board;
    return in_line ? board.seats[hint].line : board.more[hint];
  });
  mine.state = Seat::kOver;
  board_->busy[hint].store(0, std::memory_order_release);
  return true;
}

// The ticket of that rank's part of the call, if it is shown where one looks first and nothing is
// elsewhere; else 0.
std::uint32_t ShmTeam::ticket_shown(int rank, std::uint64_t key, int hint) const noexcept {
  if (rank == rank_) return tickets_;
  const Peer& it = peer(rank);
  const ShmSeat& shown = it.board->seats[hint];
  if (shown.key.load(std::memory_order_acquire) != key) return 0;
  const std::uint32_t ticket = shown.ticket.load(std::memory_order_acquire);
  const bool there = ticket != it.used[static_cast<std::size_t>(hint)] &&
                     shown.key.load(std::memory_order_acquire) == key && it.astray.empty() &&
                     it.board->strays.load(std::memory_order_acquire) == it.strays;
  return there ? ticket : 0;
}

// Once our part can be seen, so can those of others that came with us: asks for all their lines, of
// which the loads would ask only when they have seen the keys.
void ShmTeam::fetch_ahead(const TeamCall& what, int hint) const noexcept {
  const Fingerprint& call = what.fingerprint;
  const std::size_t all = what.in.size_bytes();
  const std::size_t shown = weight_bytes(call) + all;
  if (shown <= ShmSeat::kOneLineBytes || all > ShmBoard::kMoreBytes) return;
  const bool in_line = shown <= ShmSeat::kLineBytes;
  const Group& group = *what.group;
  const bool parts = gives_each(call.kind) || call.kind == CallKind::kReduceScatter;
  const std::size_t bytes = parts ? all / static_cast<std::size_t>(group.size()) : all;
  const std::size_t begin = parts ? static_cast<std::size_t>(group.index_of(rank_)) * bytes : 0;
  for (const int rank : group.ranks()) {
    if (rank == rank_) continue;
    const ShmBoard& board = *peer(rank).board;
    if (in_line) {
      __builtin_prefetch(board.seats[hint].line + ShmSeat::kOneLineBytes);
      continue;
    }
    const std::byte* const from = board.more[hint] + begin;
    for (std::size_t at = 0; at < bytes; at += kCacheLine) __builtin_prefetch(from + at);
  }
}

// So that the next call finds its seat free.
void ShmTeam::make_room_after(int hint) noexcept {
  const auto next = static_cast<std::size_t>((hint + 1) % ShmBoard::kSeats);
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
  const Fingerprint& call = run.call.fingerprint;
  if (weight_bytes(call) != 0) {
    weights_.resize(run.members.size());
    for (std::size_t i = 0; i < weights_.size(); ++i)
      std::memcpy(&weights_[i], run.members[i].seat->line, sizeof(double));
  }
  // All givers show equally much: their whole `in`.
  const std::size_t all = call.count * size_bytes(call.dtype);
  const std::size_t shown = shows_all(call.kind) ? all : all / static_cast<std::size_t>(run.size);
  finish_at_once(run.call, run.me, [&](int index) { return shown_at_once(run, index, shown); });
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

}  // namespace motley
