// What large collectives of a team have in common: how they are cut up, what members offer, and how
// they wait for each other.
#include <algorithm>
#include <cstring>

#include "comm/transport/pause.h"
#include "comm/transport/shm_moves.h"
#include "comm/transport/shm_team.h"

namespace motley {
namespace {

constexpr std::size_t kPieceBytes = 256 << 10;
constexpr std::size_t kSlotBytes = 32 << 10;  // most that is shown at once
constexpr int kMostMembers = 64;
constexpr Duration kStopWriting = std::chrono::milliseconds(50);

// Of the larger of `in` and `out`. Two members read little, many read much.
std::size_t most_at_once(CallKind kind, int members) noexcept {
  if (kind != CallKind::kAllReduce && kind != CallKind::kReduce) return kSlotBytes;
  return members <= 4 ? 8 << 10 : 4 << 10;
}

std::size_t whole_lines(std::size_t bytes) noexcept {
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

}  // namespace

std::optional<ShmRun::Way> ShmTeam::way_of(CallKind kind, std::size_t bytes, int members) noexcept {
  if (varies(kind) || kind == CallKind::kSendRecv || members > kMostMembers) return std::nullopt;
  if (bytes <= most_at_once(kind, members)) return ShmRun::Way::kAtOnce;
  return reduces(kind) ? ShmRun::Way::kReduce : ShmRun::Way::kExchange;
}

// Cuts the call up and shows what others may read and write.
void ShmTeam::show_offer(ShmRun& run) {
  const Fingerprint& call = run.call.fingerprint;
  const std::size_t all = call.count * size_bytes(call.dtype);
  const auto members = static_cast<std::size_t>(run.size);
  switch (call.kind) {
    case CallKind::kAllReduce:
    case CallKind::kReduce:
      run.block = whole_lines((all + members - 1) / members);
      break;
    case CallKind::kBroadcast:
      run.block = all;
      break;
    default:
      run.block = all / members;
  }
  run.piece = std::min(whole_lines(run.block), kPieceBytes);
  run.pieces = static_cast<std::uint32_t>((run.block + run.piece - 1) / run.piece);
  const ConstView in = run.call.in;
  const View out = run.call.out;
  const bool has_in = reduces(call.kind) || gives(call.kind, run.me, static_cast<int>(call.root));
  // What arrives in place would overwrite what others still have to read.
  const bool overwritten = call.kind == CallKind::kAllToAll && in.data == out.data;
  run.offer = {};
  if (has_in && !overwritten) {
    run.offer.in = heap_->offset_of(in.data, in.size_bytes()).value_or(ShmRun::Offer::kPrivate);
  }
  if (out.count != 0) {
    run.offer.out = heap_->offset_of(out.data, out.size_bytes()).value_or(ShmRun::Offer::kPrivate);
  }
  ShmSeat& shown = own(run);
  std::memcpy(run.line, &run.offer, sizeof(run.offer));
  for (const Count count : {&ShmSeat::given, &ShmSeat::taken, &ShmSeat::writes}) {
    (shown.*count).store(0, std::memory_order_relaxed);
  }
}

ShmRun::Offer ShmTeam::offer_of(const ShmRun& run, int index) const noexcept {
  ShmRun::Offer offer;
  std::memcpy(&offer, run.members[static_cast<std::size_t>(index)].seat->line, sizeof(offer));
  return offer;
}

std::byte* ShmTeam::heap_of(const ShmRun& run, int index) const noexcept {
  return peer(run.members[static_cast<std::size_t>(index)].rank).heap.data();
}

const std::byte* ShmTeam::slots_of(const ShmRun& run, int index) const noexcept {
  const ShmSeat& shown = *run.members[static_cast<std::size_t>(index)].seat;
  return heap_of(run, index) + shown.slots.load(std::memory_order_relaxed);
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
  (own(run).*count).store(value, std::memory_order_release);
  run.news = true;
  ring(run);
}

// Returns once no member writes to our buffers any more, as each sees that we have given up. One
// that has stopped in the middle keeps the memory, and we go on with a copy.
void ShmTeam::stop_writers(const ShmRun& run) noexcept {
  const TimePoint patience = clock_.now() + kStopWriting;
  for (const ShmRun::Member& member : run.members) {
    if (member.rank == rank_ || peer(member.rank).lost) continue;
    for (const ShmSeat& shown : peer(member.rank).board->seats) {
      if ((shown.key.load(std::memory_order_seq_cst) & ~ShmBoard::kGivenUp) != run.key) continue;
      while (shown.writes.load(std::memory_order_seq_cst) != 0) {
        if (clock_.now() > patience) {
          heap_->detach(run.call.out.data, run.call.out.size_bytes());
          return;
        }
        pause_briefly();
      }
    }
  }
}

}  // namespace motley
