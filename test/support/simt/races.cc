#include "test/support/simt/races.h"

#include <algorithm>

namespace motley::simt {
namespace {

// Code lies within 2 GiB of other code of the program.
const char kAnchor = 0;

std::int32_t offset_of(const void* place) {
  if (place == nullptr) return 0;
  return static_cast<std::int32_t>(static_cast<const char*>(place) - &kAnchor);
}
const void* place_of(std::int32_t offset) { return offset == 0 ? nullptr : &kAnchor + offset; }

}  // namespace

void Races::block_begins(unsigned threads) {
  block_begin_ = ++epoch_;
  block_begins_.push_back(block_begin_);
  clocks_epoch_.assign(threads, 0);
  clocks_.resize(threads);
  fences_.assign(threads, 0);
  seen_.clear();
  lanes_.clear();
}

void Races::block_met() {
  ++epoch_;
  lanes_.clear();
}

Races::Clocks& Races::clocks_of(unsigned thread) {
  if (clocks_epoch_[thread] != epoch_) {
    clocks_epoch_[thread] = epoch_;
    clocks_[thread] = {};
    clocks_[thread][thread % kLanes] = 1;
  }
  return clocks_[thread];
}

void Races::warp_met(const Warp& warp, std::uint32_t mask) {
  Clocks all{};
  const auto for_each = [&](auto&& body) {
    for (const Thread* const lane : warp) {
      if (lane != nullptr && (mask >> lane->lane & 1) != 0) body(lane->rank);
    }
  };
  for_each([&](unsigned thread) {
    const Clocks& own = clocks_of(thread);
    for (unsigned lane = 0; lane < kLanes; ++lane) all[lane] = std::max(all[lane], own[lane]);
  });
  for_each([&](unsigned thread) {
    clocks_[thread] = all;
    ++clocks_[thread][thread % kLanes];
  });
}

void Races::fenced(unsigned thread) { fences_[thread] = epoch_; }

// What the thread has fenced, and what others fenced before a barrier that it passed, is visible to
// those that come here later; it sees what earlier ones left.
void Races::meet_at(unsigned thread, const void* address) {
  auto& here = meetings_[address];
  for (const auto& [block, what] : here) seen_[block] = what;
  if (fences_[thread] == 0) return;
  auto visible = std::make_shared<Published>(fences_);
  for (unsigned other = 0; other < visible->size(); ++other) {
    std::uint32_t& epoch = (*visible)[other];
    if (other != thread && epoch == epoch_) epoch = 0;
    if (other != thread) epoch = std::max(epoch, fences_[thread] - 1);
  }
  here[static_cast<std::uint32_t>(block_begins_.size() - 1)] = std::move(visible);
}

std::uint32_t Races::block_of(std::uint32_t epoch) const {
  const auto above = std::ranges::upper_bound(block_begins_, epoch);
  return static_cast<std::uint32_t>(above - block_begins_.begin() - 1);
}

bool Races::published(const Mark& mark) const {
  const auto seen = seen_.find(block_of(mark.epoch));
  return seen != seen_.end() && (*seen->second)[mark.thread] >= mark.epoch;
}

bool Races::ordered(const Mark& mark, unsigned thread) {
  if (mark.epoch == 0) return true;
  if (mark.epoch < block_begin_) return published(mark);
  if (mark.epoch < epoch_ || mark.thread == thread) return true;
  if (mark.thread / kLanes != thread / kLanes) return false;
  return clocks_of(thread)[mark.thread % kLanes] >= mark.clock;
}

bool Races::all_ordered(const Marks& marks, unsigned thread) {
  const Mark& last = marks.last;
  switch (marks.many) {
    case Many::kNone:
      return true;
    case Many::kOne:
      return ordered(last, thread);
    case Many::kSomeBlocks:
      return seen_.size() + 1 == block_begins_.size();  // as far as we can tell
    case Many::kSomeLanes:
    case Many::kSomeWarps:
      if (last.epoch < block_begin_) return published(last);
      if (last.epoch < epoch_) return true;
      break;
  }
  if (marks.many == Many::kSomeWarps || last.thread / kLanes != thread / kLanes) return false;
  const Clocks& known = clocks_of(thread);
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if (lane != thread % kLanes && lanes_[marks.lanes][lane] > known[lane]) return false;
  }
  return true;
}

void Races::add(Marks& marks, const Mark& mark) {
  const Mark before = marks.last;
  if (all_ordered(marks, mark.thread)) {
    marks = {.last = mark, .lanes = 0, .many = Many::kOne};
    return;
  }
  marks.last = mark;
  if (before.epoch < block_begin_ || marks.many == Many::kSomeBlocks) {
    marks.many = Many::kSomeBlocks;
  } else if (before.thread / kLanes != mark.thread / kLanes || marks.many == Many::kSomeWarps) {
    marks.many = Many::kSomeWarps;
  } else {
    if (marks.many == Many::kOne) {
      marks.lanes = static_cast<std::uint32_t>(lanes_.size());
      lanes_.push_back({});
      lanes_.back()[before.thread % kLanes] = before.clock;
    }
    marks.many = Many::kSomeLanes;
    lanes_[marks.lanes][mark.thread % kLanes] = mark.clock;
  }
}

Races::Byte& Races::byte_at(std::uintptr_t address) {
  const std::uintptr_t page = address / kPage;
  if (last_ == nullptr || page != last_page_) {
    std::unique_ptr<Page>& slot = pages_[page];
    if (slot == nullptr) slot = std::make_unique<Page>();
    last_page_ = page;
    last_ = slot.get();
  }
  return (*last_)[address % kPage];
}

Races::Earlier Races::earlier(const Mark& mark, bool wrote) const {
  return {mark.epoch >= block_begin_, block_of(mark.epoch), mark.thread, wrote,
          place_of(mark.place)};
}

std::optional<Races::Earlier> Races::race(const Byte& byte, unsigned thread, Access::Kind kind) {
  if (!ordered(byte.write, thread)) return earlier(byte.write, true);
  if (kind != Access::Kind::kAtomic && !all_ordered(byte.atomics, thread))
    return earlier(byte.atomics.last, true);
  if (kind != Access::Kind::kRead && !all_ordered(byte.reads, thread))
    return earlier(byte.reads.last, false);
  return std::nullopt;
}

Races::Verdict Races::touch(unsigned thread, const Access& access) {
  Verdict verdict;
  const Mark mark{epoch_, static_cast<std::uint16_t>(thread), clocks_of(thread)[thread % kLanes],
                  offset_of(access.place)};
  const auto first = reinterpret_cast<std::uintptr_t>(access.at);
  for (std::uintptr_t at = first; at < first + access.bytes; ++at) {
    Byte& byte = byte_at(at);
    const std::uint32_t written = std::max(byte.write.epoch, byte.atomics.last.epoch);
    if (memory_ == Memory::kShared && std::max(written, byte.reads.last.epoch) < block_begin_)
      byte = {};
    if (access.kind != Access::Kind::kWrite && written < block_begin_) verdict.uninitialized = true;
    if (const auto found = race(byte, thread, access.kind)) verdict.race = found;
    if (access.kind == Access::Kind::kRead) {
      add(byte.reads, mark);
    } else if (access.kind == Access::Kind::kAtomic) {
      add(byte.atomics, mark);
    } else {
      byte = {.write = mark, .reads = {}, .atomics = {}};
    }
  }
  return verdict;
}

}  // namespace motley::simt
