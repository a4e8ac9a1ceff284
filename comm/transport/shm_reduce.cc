// Large reductions: the buffers are cut into a block for each member, which reduces that block of
// all members' buffers, in the order of the members.
//
// In pieces: a member lays out piece k of its blocks, each in the slot of the member that reduces
// it, while piece k - 1 is being reduced; results are laid out too, and copied by the others. Two
// slots of a kind take turns. Nobody lays out piece k before all have reduced piece k - 2, and
// nobody reduces piece k before all have laid it out, after copying the results of piece k - 2: so
// no slot is overwritten that anybody still reads. Of two members each stores results over what the
// other laid out, who alone reads them there: that takes half of the memory, and a third less time
// than storing them to lines that the other has in its caches too.
//
// In place: a member reads its block from the others' buffers, and writes it to theirs.
#include <algorithm>
#include <cstring>

#include "comm/kernel/combine.h"
#include "comm/transport/shm_team.h"

namespace motley {
namespace {

constexpr std::size_t kTile = 8 << 10;  // stays in the first cache
// Where results go around the caches: so short that the processor reads the next tile while it
// still writes this one. What was just read is stored through them: its lines are there already.
constexpr std::size_t kStreamTile = 512;
constexpr std::size_t kStreamResult = 8 << 20;      // from this on results do not fit in caches
constexpr std::size_t kStreamFromSlots = 16 << 20;  // nor do the buffers of all members

struct Range {
  std::size_t begin, bytes;
};

// Piece `k` of the block of member `q`, in a buffer of all blocks.
Range range_of(const ShmRun& run, int q, std::uint32_t k) noexcept {
  const std::size_t all = run.call.fingerprint.count * size_bytes(run.call.fingerprint.dtype);
  const std::size_t block = std::min(all, static_cast<std::size_t>(q) * run.block);
  const std::size_t end = std::min(all, block + run.block);
  const std::size_t begin = std::min(end, block + k * run.piece);
  return {begin, std::min(run.piece, end - begin)};
}

// Whether the result of a piece goes where that piece was laid out.
bool returns_results(const ShmRun& run) noexcept { return run.size == 2; }

// In a turn.
std::size_t slots(const ShmRun& run) noexcept {
  return returns_results(run) ? 1 : static_cast<std::size_t>(run.size) + 1;
}

// Slot of a heap: pieces for member `to`, or results if that is the number of members.
std::size_t slot_offset(const ShmRun& run, std::uint32_t k, int to) noexcept {
  const auto slot = static_cast<std::size_t>(returns_results(run) ? 0 : to);
  return (k % 2 * slots(run) + slot) * run.piece;
}

std::size_t all_slots(const ShmRun& run) noexcept { return 2 * slots(run) * run.piece; }

bool is_root(const ShmRun& run) noexcept {
  return static_cast<int>(run.call.fingerprint.root) == run.me;
}

// Whether results go to members that did not compute them; to this one.
bool copies_results(const ShmRun& run) noexcept {
  const CallKind kind = run.call.fingerprint.kind;
  return kind == CallKind::kAllReduce || (kind == CallKind::kReduce && is_root(run));
}

// Where block `me` of the result belongs in our `out`; null if nowhere.
std::byte* own_result(const ShmRun& run, const Range& range) noexcept {
  switch (run.call.fingerprint.kind) {
    case CallKind::kReduceScatter:
      return run.call.out.data + (range.begin - static_cast<std::size_t>(run.me) * run.block);
    case CallKind::kReduce:
      return is_root(run) ? run.call.out.data + range.begin : nullptr;
    default:
      return run.call.out.data + range.begin;
  }
}

}  // namespace

bool ShmTeam::reduce(ShmRun& run) {
  bool moved = false;
  if (!run.decided) {
    if (run.offer.in == ShmRun::Offer::kPrivate && run.given == 0) moved = give_to_reduce(run);
    if (!find_all(run)) return moved;
    take_offers(run);
    run.decided = moved = true;
    run.in_place = reduces_in_place(run);
  }
  return (run.in_place ? reduce_in_place(run) : reduce_in_pieces(run)) || moved;
}

bool ShmTeam::reduce_in_pieces(ShmRun& run) {
  bool moved = false;
  for (; run.done < run.pieces; ++run.done, run.step = 0, moved = true) {
    const std::uint32_t k = run.done;
    while (run.given < std::min(k + 2, run.pieces)) {
      // Where results are copied, that all have reduced piece k - 1 is known already.
      if (run.given >= 2 && !all_have(run, &ShmSeat::taken, run.given - 1)) return moved;
      moved |= give_to_reduce(run);
    }
    if (run.step == 0) {
      if (!all_have(run, &ShmSeat::given, k + 1)) return moved;
      if (!reduce_piece(run, k)) return moved;
      publish(run, &ShmSeat::taken, k + 1);
      run.step = 1;
      moved = true;
    }
    for (; copies_results(run) && run.step < run.size; ++run.step, moved = true) {
      const int q = (run.me + run.step) % run.size;
      if (!has(run, q, &ShmSeat::taken, k + 1)) return moved;
      const Range range = range_of(run, q, k);
      std::byte* const to = run.call.out.data + range.begin;
      const int holder = returns_results(run) ? run.me : q;
      const std::byte* const from =
          slots_of(run, holder, all_slots(run)) + slot_offset(run, k, run.size);
      copy_from_slots(run, to, from, range.bytes);
    }
  }
  streams_done();
  run.state = TeamRun::State::kDone;
  return true;
}

// Lays out the next piece of every other member's block.
bool ShmTeam::give_to_reduce(ShmRun& run) {
  if (run.slots == nullptr) keep_slots(run, all_slots(run));
  for (int j = 1; j < run.size; ++j) {
    const int q = (run.me + j) % run.size;
    const Range range = range_of(run, q, run.given);
    if (range.bytes == 0) continue;
    stores_.copy(run.slots + slot_offset(run, run.given, q), run.call.in.data + range.begin,
                 range.bytes);
  }
  publish(run, &ShmSeat::given, ++run.given);
  return true;
}

// False if that would write to the slots of a member that has given up.
bool ShmTeam::reduce_piece(ShmRun& run, std::uint32_t k) {
  const Fingerprint& call = run.call.fingerprint;
  const Combine& combine = combine_of(call);
  const Range range = range_of(run, run.me, k);
  const bool shows =
      call.kind == CallKind::kAllReduce || (call.kind == CallKind::kReduce && !is_root(run));
  const bool returns = shows && returns_results(run);
  std::byte* const result =
      slots_of(run, returns ? 1 - run.me : run.me, all_slots(run)) + slot_offset(run, k, run.size);
  std::byte* const out = own_result(run, range);
  prepare_sources(run);
  for (int s = 0; s < run.size; ++s) {
    sources_[static_cast<std::size_t>(s)] =
        s == run.me ? run.call.in.data + range.begin
                    : slots_of(run, s, all_slots(run)) + slot_offset(run, k, run.me);
  }
  if (returns && !may_write(run)) return false;
  for (std::size_t at = 0; at < range.bytes; at += kTile) {
    const std::size_t bytes = std::min(kTile, range.bytes - at);
    std::byte* const to = (out != nullptr ? out : result) + at;
    combine(to, sources_.data(), run.size, bytes / size_bytes(call.dtype), weights_.data());
    if (shows && out != nullptr) stores_.copy(result + at, to, bytes);
    for (const std::byte*& source : sources_) source += bytes;
  }
  if (returns) {
    stores_.finish();
    own(run).writes.store(0, std::memory_order_release);
  }
  return true;
}

void ShmTeam::prepare_sources(const ShmRun& run) {
  sources_.resize(static_cast<std::size_t>(run.size));
  weights_.clear();
  for (const ShmRun::Offer& offer : run.offers) weights_.push_back(offer.weight);
}

bool ShmTeam::reduces_in_place(const ShmRun& run) const noexcept {
  const CallKind kind = run.call.fingerprint.kind;
  for (int i = 0; i < run.size; ++i) {
    const ShmRun::Offer& offer = run.offers[static_cast<std::size_t>(i)];
    if (offer.in == ShmRun::Offer::kPrivate) return false;
    const bool gets =
        kind == CallKind::kAllReduce ||
        (kind == CallKind::kReduce && static_cast<int>(run.call.fingerprint.root) == i);
    if (gets && offer.out == ShmRun::Offer::kPrivate) return false;
  }
  return true;
}

bool ShmTeam::reduce_in_place(ShmRun& run) {
  const std::size_t block = std::min(run.block, own_block(run));
  bool moved = false;
  if (run.progress < block) {
    if (!may_write(run)) return false;
    reduce_part(run, std::min(kMoveInPlace, block - run.progress));
    own(run).writes.store(0, std::memory_order_release);
    for (int i = 0; i < run.size; ++i) {
      if (!still_there(run, i)) return true;
    }
    if (run.progress < block) return true;
    moved = true;
  }
  if (run.done == 0) {
    publish(run, &ShmSeat::taken, 1);
    run.done = 1;
    moved = true;
  }
  if (!all_have(run, &ShmSeat::taken, 1)) return moved;
  run.state = TeamRun::State::kDone;
  return true;
}

// Says that we write to the others' memory, and looks whether all still let us: who gives up says
// so first, and then waits for us to stop.
bool ShmTeam::may_write(ShmRun& run) {
  own(run).writes.store(1, std::memory_order_seq_cst);
  for (int index = 0; index < run.size; ++index) {
    const ShmRun::Member& member = run.members[static_cast<std::size_t>(index)];
    if (member.seat->key.load(std::memory_order_seq_cst) == run.key) continue;
    own(run).writes.store(0, std::memory_order_release);
    wait_in_vain(run, index);
    return false;
  }
  return true;
}

// The next `part` bytes of our block of all buffers, into all buffers that the result belongs to.
void ShmTeam::reduce_part(ShmRun& run, std::size_t part) {
  const Fingerprint& call = run.call.fingerprint;
  const Combine& combine = combine_of(call);
  prepare_sources(run);
  find_targets(run, part);
  const auto around = [](const Target& target) { return target.around; };
  const bool streams = std::any_of(targets_.begin(), targets_.end(), around);
  const std::size_t most = streams ? kStreamTile : kTile;
  alignas(kCacheLine) std::byte tile[kTile];
  for (std::size_t at = 0; at < part; at += most) {
    const std::size_t bytes = std::min(most, part - at);
    combine(tile, sources_.data(), run.size, bytes / size_bytes(call.dtype), weights_.data());
    for (const std::byte*& source : sources_) source += bytes;
    for (Target& target : targets_) {
      if (target.around) {
        copy_stream(target.to, tile, bytes);
      } else {
        std::memcpy(target.to, tile, bytes);
      }
      target.to += bytes;
    }
  }
  if (streams) streams_done();
  run.progress += part;
}

// Where members have the next `part` bytes of our block, and where the result of them belongs.
void ShmTeam::find_targets(const ShmRun& run, std::size_t part) {
  const Fingerprint& call = run.call.fingerprint;
  const std::size_t begin = static_cast<std::size_t>(run.me) * run.block + run.progress;
  const bool streams = call.count * size_bytes(call.dtype) >= kStreamResult;
  targets_.clear();
  for (int j = 0; j < run.size; ++j) {
    const int q = (run.me + j) % run.size;
    const ShmRun::Offer& offer = run.offers[static_cast<std::size_t>(q)];
    std::byte* const source = heap_at(run, q, offer.in + begin, part);
    sources_[static_cast<std::size_t>(q)] = source;
    std::byte* to = nullptr;
    if (call.kind == CallKind::kReduceScatter) {
      if (q == run.me) to = run.call.out.data + run.progress;
    } else if (call.kind == CallKind::kAllReduce || static_cast<int>(call.root) == q) {
      to = heap_at(run, q, offer.out + begin, part);
    }
    if (to != nullptr) targets_.push_back({to, streams && to != source});
  }
}

void ShmTeam::copy_out(const ShmRun& run, std::byte* to, const std::byte* from, std::size_t bytes) {
  const Fingerprint& call = run.call.fingerprint;
  const std::size_t all = std::max(call.count * size_bytes(call.dtype), run.call.out.size_bytes());
  if (all >= kStreamResult) {
    copy_stream(to, from, bytes);
  } else if (bytes != 0) {
    std::memcpy(to, from, bytes);
  }
}

// Where all members' buffers do not fit in the caches together, slots still do: results go around,
// but those that replace what was laid out just before, as long as other ranks leave it there.
void ShmTeam::copy_from_slots(const ShmRun& run, std::byte* to, const std::byte* from,
                              std::size_t bytes) const {
  const ConstView in = run.call.in;
  const View out = run.call.out;
  const bool in_place = in.data == out.data;
  const std::size_t own = out.size_bytes() + (in_place ? 0 : in.size_bytes());
  const bool just_read = in_place && spins_;
  if (!just_read && static_cast<std::size_t>(run.size) * own >= kStreamFromSlots) {
    copy_stream(to, from, bytes);
  } else if (bytes != 0) {
    std::memcpy(to, from, bytes);
  }
}

// Bytes of our own block.
std::size_t ShmTeam::own_block(const ShmRun& run) noexcept {
  const std::size_t all = run.call.fingerprint.count * size_bytes(run.call.fingerprint.dtype);
  return all - std::min(all, static_cast<std::size_t>(run.me) * run.block);
}

}  // namespace motley
