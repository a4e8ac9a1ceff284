// Large collectives that do not reduce, and those of blocks that vary: members take blocks from
// where the others have them.
//
// Where all members' buffers are seen by all, and are to be replaced, blocks are swapped
// (shm_swap.cc). From buffers that they see, they take them there, and from others too in the first
// calls of a size, where they can read those. Otherwise a member lays out piece k of its blocks
// while the others take piece k - 1; two turns of slots alternate, so nobody lays out piece k
// before all have taken piece k - 2. In place that is safe too: what arrives overwrites pieces that
// have been laid out.
//
// Where every block has a length of its own, the giver shows a table in front of its slots: of each
// member's block how long it is and where it lies.
#include <algorithm>
#include <cstring>

#include "comm/kernel/combine.h"
#include "comm/transport/shm_moves.h"
#include "comm/transport/shm_team.h"

namespace motley {
namespace {

constexpr std::uint32_t kMostRounds = 16;  // before somebody looks at the time again

std::size_t at(int index) noexcept { return static_cast<std::size_t>(index); }

bool has_table(CallKind kind) noexcept { return kind == CallKind::kAllToAllV; }

std::size_t table_bytes(const ShmRun& run) noexcept {
  return has_table(run.call.fingerprint.kind) ? whole_lines(at(run.size) * sizeof(ShmRun::Source))
                                              : 0;
}

// Bytes that a block takes in a turn of slots.
std::size_t slot_bytes(const ShmRun& run, std::size_t block) noexcept {
  return std::min(whole_lines(block), run.piece);
}

std::uint32_t pieces_of(const ShmRun& run, std::uint64_t block) noexcept {
  return static_cast<std::uint32_t>((block + run.piece - 1) / run.piece);
}

}  // namespace

// Which blocks go where, and how they are cut.
void ShmTeam::plan_exchange(ShmRun& run) {
  const TeamCall& call = run.call;
  const CallKind kind = call.fingerprint.kind;
  const int root = static_cast<int>(call.fingerprint.root);
  const std::size_t element = size_bytes(call.fingerprint.dtype);
  const std::size_t all = call.fingerprint.count * element;
  const std::size_t block = kind == CallKind::kBroadcast ? all : all / at(run.size);
  run.piece = piece_bytes(run.size, varies(kind) ? kLongestPiece : block);
  run.gives.assign(at(run.size), {});
  run.gets.assign(at(run.size), {});
  std::size_t in = 0, out = 0, turn = 0, longest_away = 0;
  for (int i = 0; i < run.size; ++i) {
    ShmRun::Block& give = run.gives[at(i)];
    ShmRun::Block& get = run.gets[at(i)];
    if (varies(kind)) {
      give = {in, has_table(kind) ? call.in_counts[at(i)] * element : call.in.size_bytes()};
      get = {out, call.out_counts[at(i)] * element};
      in += has_table(kind) ? give.bytes : 0;
      out += get.bytes;
    } else {
      if (motley::gives(kind, run.me, root) && motley::gets(kind, i, root))
        give = {in_offset(kind, i, block), block};
      if (motley::gets(kind, run.me, root) && motley::gives(kind, i, root))
        get = {out_offset(kind, i, block), block};
    }
    give.slot = turn;
    if (gives_each(kind)) turn += slot_bytes(run, give.bytes);
    run.offer.longest = std::max<std::uint64_t>(run.offer.longest, give.bytes);
    if (i != run.me) longest_away = std::max(longest_away, give.bytes);
  }
  run.turn = gives_each(kind) ? turn : slot_bytes(run, longest_away);
  run.to_give = pieces_of(run, longest_away);
  run.call.in_counts = run.call.out_counts = {};  // they live no longer than begin()
}

// Where a member that has a block for each of the others says how long they are.
void ShmTeam::show_table(ShmRun& run) {
  keep_slots(run, table_bytes(run) + (run.to_give != 0 ? 2 * run.turn : 0));
  const std::size_t slots = static_cast<std::size_t>(run.slots - heap_->base()) + table_bytes(run);
  for (int i = 0; i < run.size; ++i) {
    const ShmRun::Block& block = run.gives[at(i)];
    const ShmRun::Source source{block.bytes, block.begin, block.slot, run.turn, slots};
    std::memcpy(run.slots + at(i) * sizeof(source), &source, sizeof(source));
  }
}

bool ShmTeam::exchange(ShmRun& run) {
  bool moved = false;
  const bool may_swap = replaces(run, run.offer);
  if (run.to_give != 0 && run.given == 0 && !may_swap) moved = give_blocks(run);
  if (!run.decided) {
    if (!find_all(run)) return moved;
    take_offers(run);
    run.in_place = swaps(run);
    if (!run.in_place && !find_sources(run)) return true;
    run.decided = moved = true;
  }
  if (run.in_place) return swap(run) || moved;
  for (std::uint32_t round = 0; run.done < run.pieces; ++run.done, run.step = 0, moved = true) {
    if (++round > kMostRounds) return true;
    while (run.given < std::min(run.done + 2, run.to_give)) {
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
  const bool shown =
      (run.offer.in != ShmRun::Offer::kPrivate && !may_swap) || run.offer.address != 0;
  if (shown && !all_have(run, &ShmSeat::taken, run.pieces)) return moved;
  run.state = TeamRun::State::kDone;
  return true;
}

// Lays out the next piece of all that we have to give.
bool ShmTeam::give_blocks(ShmRun& run) {
  const bool each = gives_each(run.call.fingerprint.kind);
  if (run.slots == nullptr) keep_slots(run, 2 * run.turn);
  std::byte* const slots = run.slots + table_bytes(run) + run.given % 2 * run.turn;
  const std::size_t begin = run.given * run.piece;
  for (int j = 1; j < run.size; ++j) {
    const ShmRun::Block& block = run.gives[at((run.me + j) % run.size)];
    if (begin >= block.bytes) continue;
    stores_.copy(slots + block.slot, run.call.in.data + block.begin + begin,
                 std::min(run.piece, block.bytes - begin));
    if (!each) break;  // the same for all
  }
  publish(run, &ShmSeat::given, ++run.given);
  return true;
}

// What each member has for us. Fails the call where that is not what we expect.
bool ShmTeam::find_sources(ShmRun& run) {
  const CallKind kind = run.call.fingerprint.kind;
  run.sources.assign(at(run.size), {});
  for (int i = 0; i < run.size; ++i) {
    const ShmRun::Offer& offer = run.offers[at(i)];
    if (offer.longest > kMostBytes) throw_broken(run, i, 0, offer.longest);
    run.pieces = std::max(run.pieces, pieces_of(run, offer.longest));
    if (i == run.me) continue;
    const std::size_t due = run.gets[at(i)].bytes;
    ShmRun::Source& source = run.sources[at(i)];
    if (has_table(kind)) {
      const std::byte* const table = slots_of(run, i, table_bytes(run));
      std::memcpy(&source, table + at(run.me) * sizeof(source), sizeof(source));
    } else {
      source.bytes = kind == CallKind::kAllGatherV ? offer.longest : due;
      source.in = in_offset(kind, run.me, due);
      source.turn = slot_bytes(run, due);
      if (gives_each(kind)) {
        source.slot = at(run.me) * source.turn;
        source.turn *= at(run.size);
      }
    }
    if (source.bytes == due) continue;
    const std::size_t element = size_bytes(run.call.fingerprint.dtype);
    run.ours = run.theirs = run.call.fingerprint;
    run.ours.count = due / element;
    run.theirs.count = source.bytes / element;
    run.peer = run.members[at(i)].rank;
    run.state = TeamRun::State::kMismatch;
    return false;
  }
  return true;
}

// Takes the piece under way of the block that member `from` has for us, if it has any; false if it
// is not there yet.
bool ShmTeam::take_block(ShmRun& run, int from) {
  const ShmRun::Block& due = run.gets[at(from)];
  const std::size_t begin = run.done * run.piece;
  if (begin >= due.bytes) return true;
  const std::size_t bytes = std::min(run.piece, due.bytes - begin);
  std::byte* const to = run.call.out.data + due.begin + begin;
  if (from == run.me) {
    const std::byte* const own = run.call.in.data + run.gives[at(from)].begin + begin;
    if (own != to) copy_out(run, to, own, bytes);
    return true;
  }
  ShmRun::Source& source = run.sources[at(from)];
  const ShmRun::Offer& offer = run.offers[at(from)];
  if (offer.in != ShmRun::Offer::kPrivate && !replaces(run, offer)) {
    copy_out(run, to, heap_at(run, from, offer.in + source.in + begin, bytes), bytes);
    return still_there(run, from);
  }
  if (offer.address != 0) {
    return read_private(run, from, to, offer.address + source.in + begin, bytes);
  }
  if (!has(run, from, &ShmSeat::given, run.done + 1)) return false;
  if (!has_table(run.call.fingerprint.kind)) {
    source.slots = run.members[at(from)].seat->slots.load(std::memory_order_relaxed);
  }
  const std::uint64_t offset = source.slots + source.slot + run.done % 2 * source.turn;
  copy_from_slots(run, to, heap_at(run, from, offset, bytes), bytes);
  return true;
}

}  // namespace motley
