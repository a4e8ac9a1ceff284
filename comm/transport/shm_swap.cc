// All-to-all of buffers from allocate() in place: any two members exchange the blocks that they
// have for each other right where these lie, each of the two one half of them. Nothing is laid out:
// what a member does reads its share of all buffers once, and writes it once.
#include <algorithm>
#include <cstring>

#include "comm/transport/shm_team.h"

namespace motley {
namespace {

constexpr std::size_t kTile = 4 << 10;  // stays in the first cache

void swap_bytes(std::byte* a, std::byte* b, std::size_t bytes) noexcept {
  alignas(kCacheLine) std::byte tile[kTile];
  for (std::size_t at = 0; at < bytes; at += kTile) {
    const std::size_t n = std::min(kTile, bytes - at);
    std::memcpy(tile, a + at, n);
    std::memcpy(a + at, b + at, n);
    std::memcpy(b + at, tile, n);
  }
}

}  // namespace

// Whether what a member gets overwrites, in shared memory, what it gives.
bool ShmTeam::replaces(const ShmRun& run, const ShmRun::Offer& offer) noexcept {
  return run.call.fingerprint.kind == CallKind::kAllToAll && offer.in != ShmRun::Offer::kPrivate &&
         offer.in == offer.out;
}

bool ShmTeam::swaps(const ShmRun& run) noexcept {
  return std::all_of(run.offers.begin(), run.offers.end(),
                     [&](const ShmRun::Offer& offer) { return replaces(run, offer); });
}

bool ShmTeam::swap(ShmRun& run) {
  bool moved = false;
  if (run.step < run.size - 1) {
    if (!may_write(run)) return false;
    swap_part(run);
    own(run).writes.store(0, std::memory_order_release);
    for (int i = 0; i < run.size; ++i) {
      if (!still_there(run, i)) return true;
    }
    if (run.step < run.size - 1) return true;
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

// As much as is done between two looks at the others.
void ShmTeam::swap_part(ShmRun& run) {
  const Fingerprint& call = run.call.fingerprint;
  const std::size_t block =
      call.count * size_bytes(call.dtype) / static_cast<std::size_t>(run.size);
  const std::size_t half = std::min(block, whole_lines(block / 2));
  const auto block_of = [&](int member, int with) {
    const std::uint64_t in = run.offers[static_cast<std::size_t>(member)].in;
    return heap_at(run, member, in + static_cast<std::size_t>(with) * block, block);
  };
  for (std::size_t left = kMoveInPlace; run.step < run.size - 1 && left != 0;) {
    const int with = (run.me + 1 + run.step) % run.size;
    const std::size_t begin = run.me < with ? 0 : half;
    const std::size_t end = run.me < with ? half : block;
    const std::size_t bytes = std::min(left, end - begin - run.progress);
    const std::size_t at = begin + run.progress;
    swap_bytes(block_of(run.me, with) + at, block_of(with, run.me) + at, bytes);
    run.progress += bytes;
    left -= bytes;
    if (begin + run.progress < end) continue;
    run.progress = 0;
    ++run.step;
  }
}

}  // namespace motley
