// What large collectives of a team have in common: how they are cut up, what members offer, and how
// they wait for each other.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "comm/transport/pause.h"
#include "comm/transport/shm_team.h"

namespace motley {
namespace {

constexpr std::size_t kSlotBytes = 32 << 10;  // most that is shown at once
constexpr int kMostMembers = 64;
// Slots are faster than the kernel's copies from another process, but the pages of new ones cost
// as much as some calls save. Blocks of such lengths are read directly in the first calls that
// would need slots of a size: who calls but a few times makes none.
constexpr std::size_t kLeastDirect = 64 << 10;
constexpr std::size_t kMostDirect = 2 << 20;
constexpr int kDirectCalls = 8;
constexpr Duration kStopWriting = std::chrono::milliseconds(50);

// Of the larger of `in` and `out`. Two members read little, many read much.
std::size_t most_at_once(CallKind kind, int members) noexcept {
  if (kind != CallKind::kAllReduce && kind != CallKind::kReduce) return kSlotBytes;
  return members <= 4 ? 8 << 10 : 4 << 10;
}

}  // namespace

std::optional<ShmRun::Way> ShmTeam::way_of(CallKind kind, std::size_t bytes, int members) noexcept {
  if (kind == CallKind::kSendRecv || members > kMostMembers) return std::nullopt;
  if (varies(kind)) return ShmRun::Way::kExchange;
  if (bytes <= most_at_once(kind, members)) return ShmRun::Way::kAtOnce;
  return reduces(kind) ? ShmRun::Way::kReduce : ShmRun::Way::kExchange;
}

// Cuts a large reduction into a block for each member, and those into pieces.
void ShmTeam::plan_reduction(ShmRun& run) {
  const Fingerprint& call = run.call.fingerprint;
  const std::size_t all = call.count * size_bytes(call.dtype);
  const auto members = static_cast<std::size_t>(run.size);
  run.block = all / members;
  if (call.kind != CallKind::kReduceScatter) run.block = whole_lines((all + members - 1) / members);
  run.piece = piece_bytes(run.size, run.block);
  run.pieces = static_cast<std::uint32_t>((run.block + run.piece - 1) / run.piece);
  run.offer.weight = run.call.weight;
}

// Shows what others may read and write.
void ShmTeam::show_offer(ShmRun& run) {
  const CallKind kind = run.call.fingerprint.kind;
  const ConstView in = run.call.in;
  const View out = run.call.out;
  const bool has_in = reduces(kind) || run.offer.longest != 0;
  // What arrives in place would overwrite what others still have to read, unless they exchange it.
  const bool overwritten =
      (kind == CallKind::kAllToAll || kind == CallKind::kAllToAllV) && in.data == out.data;
  if (has_in && (!overwritten || kind == CallKind::kAllToAll)) {
    run.offer.in = heap_->offset_of(in.data, in.size_bytes()).value_or(ShmRun::Offer::kPrivate);
  }
  if (out.count != 0) {
    run.offer.out = heap_->offset_of(out.data, out.size_bytes()).value_or(ShmRun::Offer::kPrivate);
  }
  const bool is_private = run.offer.in == ShmRun::Offer::kPrivate;
  if (is_private && !overwritten && reads_directly(run)) {
    const std::uint64_t address = reinterpret_cast<std::uintptr_t>(in.data);
    if (peer(rank_).rest.can_be_read(address, in.size_bytes())) run.offer.address = address;
  }
  const bool is_read = run.offer.in != ShmRun::Offer::kPrivate && !replaces(run, run.offer);
  if (is_read || run.offer.address != 0) run.to_give = 0;
  std::memcpy(run.line, &run.offer, sizeof(run.offer));
  run.line_bytes = sizeof(run.offer);
  ShmSeat& shown = own(run);
  for (const Count count : {&ShmSeat::given, &ShmSeat::taken, &ShmSeat::writes}) {
    (shown.*count).store(0, std::memory_order_relaxed);
  }
  if (kind == CallKind::kAllToAllV) show_table(run);
  if (varies(kind) && run.to_give != 0) give_blocks(run);  // often all of it
}

// Whether members read our private blocks in our process. Where some only give, they would stand by
// while others copy, instead of doing half of the work.
bool ShmTeam::reads_directly(const ShmRun& run) noexcept {
  const CallKind kind = run.call.fingerprint.kind;
  const std::size_t longest = run.offer.longest;
  const bool all_get = kind == CallKind::kAllToAll || kind == CallKind::kAllToAllV ||
                       kind == CallKind::kAllGather || kind == CallKind::kAllGatherV;
  if (!reads_private_ || !all_get || longest < kLeastDirect || longest > kMostDirect) return false;
  int& calls = direct_calls_[std::bit_width(run.turn)];
  if (calls == kDirectCalls) return false;
  ++calls;
  return true;
}

// What the members show, read once: they might change it.
void ShmTeam::take_offers(ShmRun& run) {
  run.offers.resize(run.members.size());
  for (std::size_t i = 0; i < run.members.size(); ++i) {
    std::memcpy(&run.offers[i], run.members[i].seat->line, sizeof(ShmRun::Offer));
  }
}

void ShmTeam::throw_broken(const ShmRun& run, int index, std::uint64_t offset,
                           std::uint64_t bytes) const {
  const int rank = run.members[static_cast<std::size_t>(index)].rank;
  throw Error(ErrorCode::kPeerLost,
              fmt::format("shm: rank {} shows {} bytes at byte {} of its shared memory, which has "
                          "{}. Check that it is sound and runs the same version of Motley.",
                          rank, bytes, offset, peer(rank).heap.size()),
              {rank});
}

// `bytes` bytes of a member's heap, if it has them there.
std::byte* ShmTeam::heap_at(const ShmRun& run, int index, std::uint64_t offset,
                            std::uint64_t bytes) const {
  const Bytes heap = peer(run.members[static_cast<std::size_t>(index)].rank).heap;
  if (offset > heap.size() || bytes > heap.size() - offset) {
    throw_broken(run, index, offset, bytes);
  }
  return heap.data() + offset;
}

std::byte* ShmTeam::slots_of(const ShmRun& run, int index, std::size_t bytes) const {
  const ShmSeat& shown = *run.members[static_cast<std::size_t>(index)].seat;
  return heap_at(run, index, shown.slots.load(std::memory_order_relaxed), bytes);
}

// Whether a member still lets us read its buffer. If not, what we have just read may be anything,
// and the call will not complete.
bool ShmTeam::still_there(ShmRun& run, int index) const noexcept {
  const ShmRun::Member& member = run.members[static_cast<std::size_t>(index)];
  std::atomic_thread_fence(std::memory_order_acquire);
  if (member.seat->key.load(std::memory_order_relaxed) == run.key) return true;
  wait_in_vain(run, index);
  return false;
}

// Copies from the memory of a member's process. False if there is nothing to be had any more: it
// has given the call up, or died.
bool ShmTeam::read_private(ShmRun& run, int index, std::byte* to, std::uint64_t from,
                           std::size_t bytes) const {
  const int rank = run.members[static_cast<std::size_t>(index)].rank;
  const int error = peer(rank).rest.read(to, from, bytes);
  if (!still_there(run, index)) return false;
  if (error == 0) return true;
  if (error != ESRCH) {
    throw Error(ErrorCode::kIo,
                fmt::format("shm: {} bytes of the buffer of rank {} cannot be read: {} ({}). Check "
                            "that its buffer is sound, or set MOTLEY_CMA=off.",
                            bytes, rank, std::generic_category().message(error), error),
                {rank});
  }
  wait_in_vain(run, index);  // it is dead, as we shall be told
  return false;
}

// Until the call fails: somebody will tell why, or the time will be up.
void ShmTeam::wait_in_vain(ShmRun& run, int index) const noexcept {
  const ShmRun::Member& member = run.members[static_cast<std::size_t>(index)];
  run.peer = member.rank;
  run.awaited = &member.seat->writes;
  run.value = 2;
}

// Whether a member's count has come so far; else the run waits for that.
bool ShmTeam::has(ShmRun& run, int index, Count count, std::uint32_t value) const noexcept {
  const ShmRun::Member& member = run.members[static_cast<std::size_t>(index)];
  const std::atomic<std::uint32_t>& word = member.seat->*count;
  run.awaited = nullptr;
  if (static_cast<std::int32_t>(word.load(std::memory_order_acquire) - value) >= 0) return true;
  run.awaited = &word;
  run.value = value;
  run.peer = member.rank;
  return false;
}

bool ShmTeam::all_have(ShmRun& run, Count count, std::uint32_t value) const noexcept {
  for (int i = 0; i < run.size; ++i) {
    if (!has(run, i, count, value)) return false;
  }
  return true;
}

void ShmTeam::publish(ShmRun& run, Count count, std::uint32_t value) noexcept {
  stores_.finish();
  (own(run).*count).store(value, std::memory_order_release);
  run.news = true;
  ring(*run.call.group);
}

// Whether no member writes to our memory any more, as each sees that we have given up; waits a
// moment for that. One that has stopped in the middle may go on at any time, even if it is lost.
bool ShmTeam::writers_stop(const ShmRun& run) const noexcept {
  const TimePoint patience = clock_.now() + kStopWriting;
  for (const ShmRun::Member& member : run.members) {
    if (member.rank == rank_) continue;
    const Peer& it = peer(member.rank);
    for (const ShmSeat& shown : it.board->seats) {
      if ((shown.key.load(std::memory_order_seq_cst) & ~ShmBoard::kGivenUp) != run.key) continue;
      while (shown.writes.load(std::memory_order_seq_cst) != 0) {
        if (it.lost || clock_.now() > patience) return false;
        pause_briefly();
      }
    }
  }
  return true;
}

}  // namespace motley
