#include "comm/transport/shm_team.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <utility>

#include "comm/transport/pause.h"

namespace motley {
namespace {

// How often a new call looks for the others before it is left to whoever waits for it.
constexpr int kEagerLooks = 200;
constexpr int kMostMoves = 16;  // before somebody looks at the time again
constexpr int kFarLook = 32;    // every so often not only where it should be
constexpr int kCoreLook = 8;    // and whether a member is on this rank's core
constexpr std::uint32_t kCallsPerLook = 32;
// A seat of a call that its owner gave up stays as it is at least so long: a member that found it
// just before has shown itself by then.
constexpr Duration kQuarantine = std::chrono::milliseconds(20);
// So many short slots of a size are made before it is looked for used ones. Every page of longer
// ones costs a fault, which is dearer than to look.
constexpr int kFewSlots = 4;
constexpr std::size_t kShortSlots = 64 << 10;

// Exactly so many bytes, which were often written just before: a longer load would have to wait for
// them to leave the processor.
void copy_line(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  if (bytes == 4) {
    std::memcpy(to, from, 4);
  } else if (bytes != 0) {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace

ShmTeam::ShmTeam(int rank, std::shared_ptr<ShmHeap> heap,
                 const std::vector<const ShmSegment*>& segments, Abilities abilities, Clock& clock)
    : rank_(rank),
      spins_(abilities.spins),
      reads_private_(abilities.reads_private),
      clock_(clock),
      heap_(std::move(heap)),
      board_(&heap_->segment().board()),
      stores_(clock) {
  over_.state = TeamRun::State::kDone;
  for (int i = 0; i < kDTypes * kOps; ++i) {
    combines_.emplace_back(static_cast<DType>(i / kOps), static_cast<ReduceOp>(i % kOps));
  }
  for (Seat& it : seats_) it.members.reserve(segments.size());
  for (const ShmSegment* segment : segments) {
    Peer& it = peers_.emplace_back();
    if (segment == nullptr && static_cast<int>(peers_.size()) != rank_ + 1) continue;
    const ShmSegment& memory = segment != nullptr ? *segment : heap_->segment();
    it.board = &memory.board();
    it.heap = memory.heap();
    it.rest = memory.rest_of_owner();
    if (segment != nullptr) it.doorbell = &memory.doorbell();
  }
}

SharedBuffer ShmTeam::allocate(std::size_t bytes) {
  return SharedBuffer(heap_->take(bytes), bytes, heap_);
}

TeamRun& ShmTeam::begin(const TeamCall& call) {
  const std::uint64_t group = hash(call.id.group);
  const std::uint64_t key = key_of(group, call.id.number, call.fingerprint);
  const int hint = seat_hint(group, call.id.number);
  const bool early = show_early(key, hint, call);  // before all that nobody waits for
  if (early) {
    tell(*call.group);
    fetch_ahead(call, hint);
    look_where_we_are();
    make_room_after(hint);
    if (over_early(key, hint, call)) return over_;
  }
  ShmRun& run = new_run(call);
  run.key = key;
  run.hint = hint;
  if (early) run.seat = hint;
  under_way_.push_back(&run);
  try {
    const bool is_short = run.way == ShmRun::Way::kAtOnce || varies(call.fingerprint.kind);
    if (spins_ && is_short && (early || claim(run))) {
      if (!early && run.way == ShmRun::Way::kAtOnce) fetch_ahead(call, hint);
      look_for_a_while(run);
    } else {
      move(run);
    }
  } catch (const Error&) {
    end(run, nullptr);
    throw;
  }
  tell(run);
  return run;
}

ShmRun& ShmTeam::new_run(const TeamCall& call) {
  if (spare_.empty()) spare_.push_back(&runs_.emplace_back());
  ShmRun& run = *spare_.back();
  spare_.pop_back();
  run.state = TeamRun::State::kRuns;
  run.peer = -1;
  run.call = call;
  run.me = call.group->index_of(rank_);
  run.size = call.group->size();
  run.seat = -1;
  run.found = 0;
  run.news = false;
  run.awaited = nullptr;
  run.decided = run.in_place = false;
  run.line_from = run.line;
  run.line_bytes = 0;
  run.offer = {};
  run.pieces = run.to_give = run.given = run.done = 0;
  run.step = 0;
  run.slots = nullptr;
  run.progress = 0;
  run.members.resize(static_cast<std::size_t>(run.size));
  for (int i = 0; i < run.size; ++i) {
    run.members[static_cast<std::size_t>(i)] = {.rank = call.group->rank_at(i)};
  }
  const Fingerprint& what = call.fingerprint;
  run.way = *way_of(what.kind, what.count * size_bytes(what.dtype), run.size);
  if (run.way == ShmRun::Way::kExchange) plan_exchange(run);
  if (run.way == ShmRun::Way::kReduce) plan_reduction(run);
  return run;
}

// Where the others are there, a small call is over in less time than anything else would take; and
// a large one waits for them a moment now and then.
void ShmTeam::look_for_a_while(ShmRun& run) {
  int moves = 0;
  for (int i = 1; i <= kEagerLooks && run.state == TeamRun::State::kRuns; ++i) {
    if (run.found == run.size) {
      if (!ready(run)) {
        pause_between_looks(*run.call.group, i);
      } else if (move(run)) {
        if (++moves == kMostMoves) return;
        i = 0;
      }
      continue;
    }
    if (i % kFarLook == 0) {
      move(run);
    } else if (find_near(run)) {
      i = 0;
    } else {
      pause_between_looks(*run.call.group, i);
    }
  }
}

// A member that needs this core gets it, and if it stays there one of the two goes.
void ShmTeam::pause_between_looks(const Group& group, int look) noexcept {
  if (look % kCoreLook != 0) return pause_briefly();
  const std::uint32_t here = heap_->segment().doorbell().look_from_here();
  for (const int rank : group.ranks()) {
    const Doorbell* const bell = peer(rank).doorbell;
    if (bell == nullptr || bell->core.load(std::memory_order_relaxed) != here) continue;
    if (rank < rank_ && hop_.due(clock_)) hop_away();
    sched_yield();
    return;
  }
  hop_.apart();
  pause_briefly();
}

void ShmTeam::hop_away() noexcept {
  Doorbell& own = heap_->segment().doorbell();
  std::vector<int> taken = {static_cast<int>(own.look_from_here()) - 1};
  for (const Peer& it : peers_) {
    if (it.doorbell == nullptr) continue;
    taken.push_back(static_cast<int>(it.doorbell->core.load(std::memory_order_relaxed)) - 1);
  }
  if (hop_to_another_core(taken)) own.look_from_here();
}

bool ShmTeam::advance(TeamRun& team_run) {
  if (&team_run == &over_) return false;
  auto& run = static_cast<ShmRun&>(team_run);
  const bool moved = move(run);
  if (moved && spins_) look_for_a_while(run);
  tell(run);
  return moved;
}

bool ShmTeam::move(ShmRun& run) {
  if (run.state != TeamRun::State::kRuns) return false;
  if (run.seat < 0 && !claim(run)) return false;
  switch (run.way) {
    case ShmRun::Way::kReduce:
      return reduce(run);
    case ShmRun::Way::kExchange:
      return exchange(run);
    case ShmRun::Way::kAtOnce:
      break;
  }
  return at_once(run);
}

void ShmTeam::end(TeamRun& team_run, const Error*) noexcept {
  if (&team_run == &over_) return;
  auto& run = static_cast<ShmRun&>(team_run);
  if (run.seat >= 0) {
    Seat& mine = seat(run);
    mine.state = Seat::kOver;
    if (run.state != TeamRun::State::kDone) {
      own(run).key.store(run.key | ShmBoard::kGivenUp, std::memory_order_seq_cst);
      mine.state = Seat::kGivenUp;
      mine.given_up = clock_.now();
      if (run.way != ShmRun::Way::kAtOnce && !writers_stop(run)) {
        if (run.offer.out != ShmRun::Offer::kPrivate) {
          heap_->detach(run.call.out.data, run.call.out.size_bytes());
        }
        mine.slots = {};  // never dealt out again
      }
    }
    std::swap(mine.members, run.members);
    board_->busy[run.seat].store(0, std::memory_order_release);
  }
  std::erase(under_way_, &run);
  spare_.push_back(&run);
}

// As find_all(), where that needs but one look at each member. True if it found one.
bool ShmTeam::find_near(ShmRun& run) {
  const int before = run.found;
  for (; run.found < run.size; ++run.found) {
    const Peer& it = peer(run.members[static_cast<std::size_t>(run.found)].rank);
    const ShmSeat& shown = it.board->seats[it.doorbell == nullptr ? run.seat : run.hint];
    if (shown.key.load(std::memory_order_acquire) != run.key) break;
    if (it.doorbell != nullptr && (!it.astray.empty() || it.board->strays.load() != it.strays)) {
      move(run);
      break;
    }
    if (!take(run, run.found, it.doorbell == nullptr ? run.seat : run.hint)) break;
  }
  if (run.found == run.size && run.state == TeamRun::State::kRuns) move(run);
  return run.found != before;
}

// Takes a seat, the one where the others look first if it is free.
bool ShmTeam::claim(ShmRun& run) {
  const int hint = run.hint;
  if (seats_[static_cast<std::size_t>(hint)].state != Seat::kFree) sweep();
  int at = hint;
  while (seats_[static_cast<std::size_t>(at)].state != Seat::kFree) {
    at = (at + 1) % ShmBoard::kSeats;
    if (at != hint) continue;
    run.peer = blocker(seats_[static_cast<std::size_t>(hint)]);
    return false;
  }
  run.seat = at;
  Seat& mine = seat(run);
  mine.state = Seat::kBusy;
  mine.key = run.key;
  if (run.way == ShmRun::Way::kAtOnce) {
    show_at_once(run);
  } else {
    show_offer(run);
  }
  show(run.key, at, run.call, {run.line_from, run.line_bytes});
  if (at != hint) board_->strays.fetch_add(1, std::memory_order_release);
  run.news = true;
  ring(*run.call.group);
  look_where_we_are();
  return true;
}

// Who is always the last to come never looks around otherwise.
void ShmTeam::look_where_we_are() noexcept {
  if (spins_ && tickets_ % kCallsPerLook == 0) heap_->segment().doorbell().look_from_here();
}

// What the call is, and `line` beside its key.
void ShmTeam::show(std::uint64_t key, int at, const TeamCall& call, ConstBytes line) noexcept {
  if (++tickets_ == 0) ++tickets_;
  board_->busy[at].store(tickets_, std::memory_order_relaxed);
  ShmSeat& shown = board_->seats[at];
  shown.id.group = call.id.group;
  shown.id.number = call.id.number;
  shown.fingerprint = call.fingerprint;
  // One store after the other: who looks at the line meanwhile would take it away in the middle.
  shown.key.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  shown.ticket.store(tickets_, std::memory_order_relaxed);
  copy_line(shown.line, line.data(), line.size());
  shown.key.store(key, std::memory_order_release);
}

void ShmTeam::tell(ShmRun& run) noexcept {
  if (std::exchange(run.news, false)) tell(*run.call.group);
}

// Who sleeps looked once more after saying so; so we look who sleeps once our news can be seen.
void ShmTeam::tell(const Group& group) const noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  ring(group);
}

void ShmTeam::ring(const Group& group) const noexcept {
  for (const int rank : group.ranks()) {
    Doorbell* const bell = peer(rank).doorbell;
    if (bell != nullptr && bell->waiting.load(std::memory_order_relaxed) != 0) bell->ring();
  }
}

// Frees the seats, and their slots, that nobody reads any more.
void ShmTeam::sweep() noexcept {
  for (Seat& it : seats_) {
    if (it.state != Seat::kOver && it.state != Seat::kGivenUp) continue;
    const auto over = [&](const ShmRun::Member& member) {
      // The usual case first: a call that this member was found in.
      const bool through = member.at >= 0 && busy_with(member) != member.ticket;
      return through || over_for(it, member);
    };
    if (!std::all_of(it.members.begin(), it.members.end(), over)) continue;
    it.state = Seat::kFree;
    if (it.slots.data != nullptr) {
      slots_[std::bit_width(it.slots.bytes)].push_back(it.slots.data);
      it.slots = {};
    }
  }
}

bool ShmTeam::over_for(const Seat& mine, const ShmRun::Member& member) const noexcept {
  const Peer& it = peer(member.rank);
  if (member.rank == rank_ || it.lost) return true;
  const auto busy = [&](int at) { return it.board->busy[at].load(std::memory_order_acquire); };
  if (member.at >= 0) return busy_with(member) != member.ticket;
  if (clock_.now() < mine.given_up + kQuarantine) return false;
  for (int at = 0; at < ShmBoard::kSeats; ++at) {
    if (busy(at) != 0 && it.board->seats[at].key.load(std::memory_order_acquire) == mine.key)
      return false;
  }
  return true;
}

// A member that keeps the seat from being used again.
int ShmTeam::blocker(const Seat& mine) const noexcept {
  for (const ShmRun::Member& member : mine.members) {
    if (!over_for(mine, member)) return member.rank;
  }
  return -1;
}

// Slots of at least `bytes` for the run's seat. Used ones come first: they are in the caches.
void ShmTeam::keep_slots(ShmRun& run, std::size_t bytes) {
  const std::size_t size = std::bit_ceil(bytes);
  std::vector<std::byte*>& spare = slots_[std::bit_width(size)];
  int& made = slots_made_[std::bit_width(size)];
  if (spare.empty() && (size > kShortSlots || made >= kFewSlots)) sweep();
  if (spare.empty()) {
    spare.push_back(heap_->take(size));
    ++made;
  }
  seat(run).slots = {spare.back(), size};
  spare.pop_back();
  run.slots = seat(run).slots.data;
  own(run).slots.store(static_cast<std::uint64_t>(run.slots - heap_->base()),
                       std::memory_order_relaxed);
}

bool ShmTeam::ready() const noexcept {
  return std::any_of(under_way_.begin(), under_way_.end(),
                     [&](const ShmRun* run) { return ready(*run); });
}

bool ShmTeam::starved() const noexcept {
  return std::any_of(under_way_.begin(), under_way_.end(),
                     [](const ShmRun* run) { return run->seat < 0; });
}

bool ShmTeam::ready(const ShmRun& run) const noexcept {
  if (run.state != TeamRun::State::kRuns) return true;
  if (run.seat < 0) return false;
  if (run.awaited != nullptr) {
    const std::uint32_t now = run.awaited->load(std::memory_order_acquire);
    return static_cast<std::int32_t>(now - run.value) >= 0;
  }
  if (run.found == run.size) return true;
  const Peer& it = peer(run.members[static_cast<std::size_t>(run.found)].rank);
  const auto hint = static_cast<std::size_t>(run.hint);
  const ShmSeat& shown = it.board->seats[hint];
  if (it.board->strays.load(std::memory_order_acquire) != it.strays) return true;
  if (shown.ticket.load(std::memory_order_relaxed) == it.used[hint]) return false;
  return shown.key.load(std::memory_order_acquire) == run.key || shown.id == run.call.id;
}

}  // namespace motley
