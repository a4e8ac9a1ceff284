// How a member finds the seats of the others for a call, and sees that they make another one.
#include "comm/transport/shm_team.h"

namespace motley {

// Whether all members have shown their parts; else the run waits for the first that has not.
bool ShmTeam::find_all(ShmRun& run) {
  while (run.found < run.size && find(run, run.found)) ++run.found;
  if (run.found == run.size) return true;
  if (run.state == TeamRun::State::kRuns && !disagrees(run, run.found)) {
    run.peer = run.members[static_cast<std::size_t>(run.found)].rank;
  }
  return false;
}

// Whether member `index` has shown its part; fails the call where it shows another one.
bool ShmTeam::find(ShmRun& run, int index) {
  const int rank = run.members[static_cast<std::size_t>(index)].rank;
  if (rank == rank_) return take(run, index, run.seat);
  Peer& it = peer(rank);
  const int hint = run.hint;
  const ShmSeat& shown = it.board->seats[hint];
  const bool here = shown.key.load(std::memory_order_acquire) == run.key;
  if (!here && disagrees(run, index, hint)) return false;
  const std::uint32_t strays = it.board->strays.load(std::memory_order_acquire);
  if (strays != it.strays) {
    it.strays = strays;
    search(it);
  }
  if (it.astray.empty()) return here && take(run, index, hint);
  return find_oldest(run, index);
}

// Notes the seats of a peer whose calls are not where one looks first.
void ShmTeam::search(Peer& it) {
  it.astray.clear();
  for (int at = 0; at < ShmBoard::kSeats; ++at) {
    const ShmSeat& shown = it.board->seats[at];
    const std::uint64_t key = shown.key.load(std::memory_order_acquire);
    if (key == 0) continue;
    const CallId id = shown.id;
    std::atomic_thread_fence(std::memory_order_acquire);
    const bool being_written = shown.key.load(std::memory_order_relaxed) != key;
    if (being_written || seat_hint(hash(id.group), id.number) != at) it.astray.push_back(at);
  }
}

// There and among those. Of several that fit, the first that was shown is meant: the others are
// later calls of the same name.
bool ShmTeam::find_oldest(ShmRun& run, int index) {
  const Peer& it = peer(run.members[static_cast<std::size_t>(index)].rank);
  int oldest = -1;
  std::uint32_t first = 0;
  const auto consider = [&](int at) {
    const ShmSeat& shown = it.board->seats[at];
    if (shown.key.load(std::memory_order_acquire) != run.key) {
      return static_cast<void>(disagrees(run, index, at));
    }
    const std::uint32_t ticket = shown.ticket.load(std::memory_order_relaxed);
    if (ticket == it.used[static_cast<std::size_t>(at)]) return;
    if (oldest >= 0 && static_cast<std::int32_t>(ticket - first) > 0) return;
    oldest = at;
    first = ticket;
  };
  for (const int at : it.astray) consider(at);
  consider(run.hint);
  return run.state == TeamRun::State::kRuns && oldest >= 0 && take(run, index, oldest);
}

// Whether a seat shows the same call with another kind, count, dtype, op or root.
bool ShmTeam::disagrees(ShmRun& run, int index, int at) noexcept {
  const int rank = run.members[static_cast<std::size_t>(index)].rank;
  Peer& it = peer(rank);
  const ShmSeat& shown = it.board->seats[at];
  const std::uint64_t key = shown.key.load(std::memory_order_acquire);
  const std::uint32_t ticket = shown.ticket.load(std::memory_order_relaxed);
  std::uint32_t& used = it.used[static_cast<std::size_t>(at)];
  if (key == 0 || ticket == used || (key & ~ShmBoard::kGivenUp) == run.key) return false;
  const bool same = shown.id == run.call.id;
  const Fingerprint theirs = shown.fingerprint;
  std::atomic_thread_fence(std::memory_order_acquire);
  if (!same || theirs == run.call.fingerprint) return false;
  // It may be being written: the name comes first, the call next, and the key last.
  const std::uint64_t named = key_of(hash(run.call.id.group), run.call.id.number, theirs);
  if ((key | ShmBoard::kGivenUp) != (named | ShmBoard::kGivenUp) ||
      (shown.key.load(std::memory_order_relaxed) | ShmBoard::kGivenUp) !=
          (key | ShmBoard::kGivenUp)) {
    return false;
  }
  used = ticket;
  run.members[static_cast<std::size_t>(index)].at = at;
  run.members[static_cast<std::size_t>(index)].ticket = ticket;
  run.state = TeamRun::State::kMismatch;
  run.peer = rank;
  run.ours = run.call.fingerprint;
  run.theirs = theirs;
  return true;
}

// Whether a member that it is not the turn of yet disagrees: the one whose turn it is may have
// found that out, and given the call up.
bool ShmTeam::disagrees(ShmRun& run, int index) {
  for (int i = index + 1; i < run.size; ++i) {
    if (run.members[static_cast<std::size_t>(i)].rank == rank_) continue;
    if (disagrees(run, i, run.hint)) return true;
  }
  return false;
}

}  // namespace motley
