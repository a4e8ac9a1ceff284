#include "test/support/simt/block.h"

#include <fmt/format.h>

#include <bit>
#include <cassert>
#include <utility>

#include "comm/error.h"
#include "test/support/simt/observer.h"

namespace motley::simt {
namespace {

thread_local Thread* running = nullptr;

std::string text(uint3 at) { return fmt::format("({}, {}, {})", at.x, at.y, at.z); }

}  // namespace

const char* name(FaultKind kind) noexcept {
  switch (kind) {
    case FaultKind::kUninitialized:
      return "uninitialized";
    case FaultKind::kRace:
      return "race";
    case FaultKind::kOutOfBounds:
      return "out of bounds";
    case FaultKind::kMisaligned:
      return "misaligned";
    case FaultKind::kBarrier:
      return "barrier";
    case FaultKind::kExchange:
      return "exchange";
  }
  return "unknown";
}

Thread* current() noexcept { return running; }
void set_current(Thread* thread) noexcept { running = thread; }

void BlockRunner::enter(void* thread) { static_cast<Thread*>(thread)->runner->call_->run(); }

void BlockRunner::place_threads() {
  const dim3 shape = shape_.block;
  size_ = shape.x * shape.y * shape.z;
  while (threads_.size() < size_) threads_.push_back(std::make_unique<Thread>());
  warps_.assign((size_ + kLanes - 1) / kLanes, Warp{});
  ready_.clear();
  for (unsigned rank = 0; rank < size_; ++rank) {
    Thread& thread = *threads_[rank];
    thread.index = {rank % shape.x, rank / shape.x % shape.y, rank / shape.x / shape.y};
    thread.rank = rank;
    thread.lane = rank % kLanes;
    thread.warp = &warps_[rank / kLanes];
    (*thread.warp)[thread.lane] = &thread;
    thread.state = Thread::State::kReady;
    thread.runner = this;
    ready_.push_back(&thread);
  }
  alive_ = size_;
  at_barrier_ = 0;
  met_ = false;
  stopped_ = false;
}

void BlockRunner::run(const Shape& shape, uint3 block, const Call& call, Observer* observer) {
  shape_ = shape;
  block_ = block;
  call_ = &call;
  observer_ = observer;
  place_threads();
  if (observer_ != nullptr) observer_->block_begins(*this);
  run_ready();
  if (!stopped_ && alive_ != 0) {
    stopped_ = true;
    given_up_ = why_stuck();
  }
  if (stopped_ && observer_ != nullptr) observer_->gave_up(*this, given_up_);
  if (observer_ != nullptr) observer_->block_ends(*this);
  if (!stopped_) return;
  for (const auto& thread : threads_) thread->strand.abandon();
  throw Error(ErrorCode::kInvalid, fmt::format("kernel, block {} thread {}: {}", text(block_),
                                               text(given_up_.thread->index), given_up_.what));
}

void BlockRunner::run_ready() {
  while (!stopped_ && (!ready_.empty() || release_coalescing())) {
    Thread& thread = *ready_.front();
    ready_.pop_front();
    thread.state = Thread::State::kReady;
    running = &thread;
    if (thread.strand.busy()) {
      thread.strand.resume();
    } else {
      thread.strand.start(enter, &thread);
    }
    running = nullptr;
    if (!thread.strand.busy()) {
      thread.state = Thread::State::kReturned;
      --alive_;
      if (at_barrier_ != 0 && at_barrier_ == alive_) leave_barrier();
    }
    if (std::exchange(met_, false) && on_met_) on_met_();
  }
}

// Whether all lanes that `last` names are where it is.
bool BlockRunner::all_there(const Thread& last) const {
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const Thread* const other = (*last.warp)[lane];
    if ((last.mask >> lane & 1) == 0 || other == nullptr || other == &last) continue;
    if (other->state != Thread::State::kAtExchange || other->mask != last.mask ||
        other->combine != last.combine) {
      return false;
    }
  }
  return true;
}

std::uint64_t BlockRunner::exchange(Thread& thread, std::uint32_t mask, Combine combine,
                                    std::uint64_t value, std::uint32_t argument,
                                    const void* place) {
  thread.place = place;
  if ((mask >> thread.lane & 1) == 0) {
    give_up({FaultKind::kExchange, &thread, nullptr, place,
             fmt::format("lane {} is not in the mask 0x{:08x} that it gives", thread.lane, mask)});
  }
  thread.mask = mask;
  thread.combine = combine;
  thread.value = value;
  thread.argument = argument;
  if (!all_there(thread)) {
    thread.state = Thread::State::kAtExchange;
    thread.strand.suspend();
    return thread.result;
  }
  combine(*thread.warp, mask);
  for (Thread* const other : *thread.warp) {
    if (other == nullptr || other == &thread || (mask >> other->lane & 1) == 0) continue;
    other->state = Thread::State::kReady;
    ready_.push_back(other);
  }
  return thread.result;
}

unsigned BlockRunner::barrier(Thread& thread, bool predicate, const void* place) {
  thread.place = place;
  thread.predicate = predicate;
  thread.state = Thread::State::kAtBarrier;
  if (++at_barrier_ == alive_) leave_barrier();
  thread.strand.suspend();
  return thread.count;
}

std::uint32_t BlockRunner::coalesce(Thread& thread, const void* place) {
  thread.place = place;
  thread.state = Thread::State::kCoalescing;
  thread.strand.suspend();
  return static_cast<std::uint32_t>(thread.result);
}

// Nobody else can come any more: lanes of a warp that wait in one place go on together.
bool BlockRunner::release_coalescing() {
  for (unsigned rank = 0; rank < size_; ++rank) {
    const Thread& first = *threads_[rank];
    if (first.state != Thread::State::kCoalescing) continue;
    std::uint32_t mask = 0;
    for (Thread* const lane : *first.warp) {
      if (lane == nullptr || lane->state != Thread::State::kCoalescing) continue;
      if (lane->place == first.place) mask |= 1u << lane->lane;
    }
    for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
      Thread& lane = *(*first.warp)[static_cast<unsigned>(std::countr_zero(rest))];
      lane.result = mask;
      lane.state = Thread::State::kReady;
      ready_.push_back(&lane);
    }
  }
  return !ready_.empty();
}

void BlockRunner::leave_barrier() {
  if (observer_ != nullptr) observer_->block_met(*this);
  unsigned count = 0;
  for (unsigned rank = 0; rank < size_; ++rank) {
    const Thread& thread = *threads_[rank];
    if (thread.state == Thread::State::kAtBarrier && thread.predicate) ++count;
  }
  for (unsigned rank = 0; rank < size_; ++rank) {
    Thread& thread = *threads_[rank];
    if (thread.state != Thread::State::kAtBarrier) continue;
    thread.count = count;
    thread.state = Thread::State::kReady;
    ready_.push_back(&thread);
  }
  at_barrier_ = 0;
  met_ = true;
}

void BlockRunner::give_up(GivenUp why) {
  stopped_ = true;
  given_up_ = std::move(why);
  running = threads_[given_up_.thread->rank].get();
  for (;;) running->strand.suspend();
}

GivenUp BlockRunner::why_stuck() const {
  const Thread* at_barrier = nullptr;
  for (unsigned rank = 0; rank < size_; ++rank) {
    const Thread& thread = *threads_[rank];
    if (thread.state == Thread::State::kAtBarrier) at_barrier = &thread;
    if (thread.state != Thread::State::kAtExchange) continue;
    std::string others;
    for (const Thread* const other : *thread.warp) {
      if (other == nullptr || other == &thread || (thread.mask >> other->lane & 1) == 0) continue;
      if (other->state == Thread::State::kReturned) {
        others += fmt::format(" lane {} has returned;", other->lane);
      } else if (other->state == Thread::State::kAtBarrier) {
        others += fmt::format(" lane {} waits at a barrier;", other->lane);
      } else if (other->mask != thread.mask || other->combine != thread.combine) {
        others += fmt::format(" lane {} waits in another call or for mask 0x{:08x};", other->lane,
                              other->mask);
      }
    }
    return {
        FaultKind::kExchange, &thread, nullptr, thread.place,
        fmt::format("waits for lanes of mask 0x{:08x} that never come:{}", thread.mask, others)};
  }
  assert(at_barrier != nullptr);
  return {FaultKind::kBarrier, at_barrier, nullptr, at_barrier->place,
          fmt::format("waits at a barrier with {} of {} threads; the others never reach it",
                      at_barrier_, size_)};
}

}  // namespace motley::simt
