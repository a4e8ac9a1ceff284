#include "test/support/simt/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "test/support/simt/symbols.h"

namespace motley {
extern thread_local std::byte dynamic_shared_bytes[];
}

namespace motley::simt {
namespace {

const char* verb(Access::Kind kind) {
  switch (kind) {
    case Access::Kind::kRead:
      return "reads";
    case Access::Kind::kWrite:
      return "writes";
    case Access::Kind::kAtomic:
      return "updates";
  }
  return "touches";
}

uint3 index_of(std::uint32_t rank, const dim3& shape) {
  return {rank % shape.x, rank / shape.x % shape.y, rank / shape.x / shape.y};
}

std::string text(uint3 at) { return fmt::format("({}, {}, {})", at.x, at.y, at.z); }

}  // namespace

Checker::Checker(const Shape& shape, const Call& call, std::vector<test::DeviceHeap::Block> buffers)
    : shape_(shape),
      call_(call),
      kernel_(Symbols::get().function(call.kernel)),
      buffers_(std::move(buffers)) {}

void Checker::block_begins(BlockRunner& runner) {
  blocks_.push_back(runner.block());
  shared_.block_begins(runner.size());
  global_.block_begins(runner.size());
  costs_.block_begins(runner.size());
}

void Checker::block_ends(BlockRunner&) { costs_.block_ends(); }

const test::DeviceHeap::Block* Checker::buffer_near(const void* address) const {
  const auto above = std::ranges::upper_bound(buffers_, static_cast<const std::byte*>(address), {},
                                              &test::DeviceHeap::Block::data);
  return above == buffers_.begin() ? nullptr : &*(above - 1);
}

bool Checker::in_shared(const Access& access) const {
  const auto* const at = static_cast<const std::byte*>(access.at);
  const auto offset = static_cast<std::size_t>(at - dynamic_shared_bytes);
  if (offset < kMostSharedBytes) return offset + access.bytes <= shape_.shared_bytes;
  const Symbols::Range* const variable = Symbols::get().local_variable(at);
  return variable != nullptr && Symbols::get().local_variable(at + access.bytes - 1) == variable;
}

Checker::Where Checker::where(const Thread& thread, const Access& access) const {
  const auto* const at = static_cast<const std::byte*>(access.at);
  if (thread.strand.holds(at)) return Where::kOwn;
  if (const test::DeviceHeap::Block* const buffer = buffer_near(at)) {
    const auto offset = static_cast<std::size_t>(at - buffer->data);
    if (offset + access.bytes <= buffer->size_bytes) return Where::kGlobal;
  }
  if (Symbols::is_local(at)) return in_shared(access) ? Where::kShared : Where::kNowhere;
  const auto* const parameters = static_cast<const std::byte*>(call_.parameters);
  const bool reads = access.kind == Access::Kind::kRead;
  if (at >= parameters && at < parameters + call_.parameter_bytes) return Where::kOwn;
  return reads && Symbols::get().is_static(at) ? Where::kOwn : Where::kNowhere;
}

std::string Checker::outside(const Access& access) const {
  const auto* const at = static_cast<const std::byte*>(access.at);
  const std::string what = fmt::format("{} {} bytes", verb(access.kind), access.bytes);
  if (Symbols::is_local(at)) {
    const auto offset = static_cast<std::size_t>(at - dynamic_shared_bytes);
    if (offset < kMostSharedBytes) {
      return fmt::format("{} at byte {} of {} of dynamic shared memory", what, offset,
                         shape_.shared_bytes);
    }
    return what + " outside of any shared variable";
  }
  constexpr std::ptrdiff_t kNear = 1 << 20;
  const test::DeviceHeap::Block* const before = buffer_near(at);
  if (before != nullptr &&
      at - before->data < static_cast<std::ptrdiff_t>(before->size_bytes) + kNear)
    return fmt::format("{} at byte {} of a buffer of {} bytes", what, at - before->data,
                       before->size_bytes);
  const auto after = std::ranges::upper_bound(buffers_, at, {}, &test::DeviceHeap::Block::data);
  if (after != buffers_.end() && after->data - at < kNear)
    return fmt::format("{} that begin {} bytes before a buffer of {} bytes", what, after->data - at,
                       after->size_bytes);
  return what + " of memory that is no device's";
}

std::string Checker::conflict(const Thread& thread, const Access& access,
                              const Races::Earlier& other) const {
  const bool shared = Symbols::is_local(access.at);
  const std::string where =
      other.this_block ? "" : fmt::format("block {} ", text(blocks_[other.block]));
  std::string what =
      fmt::format("{} {} bytes of {} memory that {}thread {} {} at {}; nothing orders them",
                  verb(access.kind), access.bytes, shared ? "shared" : "global", where,
                  text(index_of(other.thread, thread.runner->shape().block)),
                  other.wrote ? "wrote" : "read", Symbols::get().place(other.place));
  if (shared) {
    if (const Symbols::Range* const variable = Symbols::get().local_variable(access.at))
      what += fmt::format(" ({})", variable->name);
  }
  return what;
}

void Checker::touch(Thread& thread, const Access& access) {
  const Where in = where(thread, access);
  if (in == Where::kOwn || access.bytes == 0) return;
  if (in == Where::kNowhere) {
    thread.runner->give_up(
        {FaultKind::kOutOfBounds, &thread, access.at, access.place, outside(access)});
  }
  if (reinterpret_cast<std::uintptr_t>(access.at) % access.alignment != 0) {
    thread.runner->give_up(
        {FaultKind::kMisaligned, &thread, access.at, access.place,
         fmt::format("{} {} bytes at an address that is {} beyond a multiple", verb(access.kind),
                     access.bytes,
                     reinterpret_cast<std::uintptr_t>(access.at) % access.alignment)});
  }
  const bool shared = in == Where::kShared;
  costs_.touch(thread, access, shared ? Space::kShared : Space::kGlobal);
  if (!shared && access.kind == Access::Kind::kAtomic) global_.meet_at(thread.rank, access.at);
  const Races::Verdict verdict = (shared ? shared_ : global_).touch(thread.rank, access);
  if (shared && verdict.uninitialized) {
    const Symbols::Range* const variable = Symbols::get().local_variable(access.at);
    add(FaultKind::kUninitialized, thread, access.at, access.place, nullptr,
        fmt::format("{} {} bytes of {} that no thread of the block has written", verb(access.kind),
                    access.bytes, variable->name));
  }
  if (verdict.race) {
    add(FaultKind::kRace, thread, access.at, access.place, verdict.race->place,
        conflict(thread, access, *verdict.race));
  }
}

void Checker::enter(Thread& thread, const void* place) { costs_.enter(thread, place); }
void Checker::fenced(Thread& thread) { global_.fenced(thread.rank); }

void Checker::warp_met(const Warp& warp, std::uint32_t mask) {
  shared_.warp_met(warp, mask);
  global_.warp_met(warp, mask);
}

void Checker::block_met(BlockRunner& runner) {
  const Thread* there = nullptr;
  for (unsigned rank = 0; rank < runner.size(); ++rank) {
    const Thread& thread = runner.thread(rank);
    if (thread.state == Thread::State::kAtBarrier && there == nullptr) there = &thread;
  }
  assert(there != nullptr);
  for (unsigned rank = 0; rank < runner.size(); ++rank) {
    const Thread& thread = runner.thread(rank);
    if (thread.state == Thread::State::kReturned) {
      add(FaultKind::kBarrier, *there, nullptr, there->place, nullptr,
          fmt::format("waits at a barrier that thread {} never reaches: it has returned",
                      text(thread.index)));
    } else if (thread.place != there->place) {
      add(FaultKind::kBarrier, *there, nullptr, there->place, thread.place,
          fmt::format("waits at a barrier while thread {} waits at another, {}", text(thread.index),
                      Symbols::get().place(thread.place)));
    }
  }
  costs_.block_met();
  shared_.block_met();
  global_.block_met();
}

void Checker::gave_up(BlockRunner&, const GivenUp& why) {
  add(why.kind, *why.thread, why.address, why.place, nullptr, why.what);
}

void Checker::add(FaultKind kind, const Thread& thread, const void* address, const void* place,
                  const void* other_place, const std::string& what) {
  if (std::exchange(known_[{kind, place, other_place}], true)) return;
  faults_.push_back({kind, kernel_, thread.runner->block(), thread.index, address,
                     Symbols::get().place(place), what});
}

KernelReport Checker::report() const {
  KernelReport report = costs_.report();
  report.name = kernel_;
  return report;
}

}  // namespace motley::simt
