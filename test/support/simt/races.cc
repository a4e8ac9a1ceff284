#include "test/support/simt/races.h"

#include <algorithm>

namespace motley::simt {

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

bool Races::readers_ordered(const Byte& byte, unsigned thread) {
  const bool before_block = byte.read.epoch < block_begin_;
  switch (byte.readers) {
    case Readers::kNone:
      return true;
    case Readers::kOne:
      return ordered(byte.read, thread);
    case Readers::kSomeBlocks:
      return seen_.size() + 1 == block_begins_.size();  // as far as we can tell
    case Readers::kSomeLanes:
    case Readers::kSomeWarps:
      if (before_block) return published(byte.read);
      if (byte.read.epoch < epoch_) return true;
      break;
  }
  if (byte.readers == Readers::kSomeWarps) return false;
  if (byte.read.thread / kLanes != thread / kLanes) return false;
  const Clocks& known = clocks_of(thread);
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if (lane != thread % kLanes && lanes_[byte.lanes][lane] > known[lane]) return false;
  }
  return true;
}

bool Races::writes_ordered(const Byte& byte, unsigned thread, bool atomic) {
  if (atomic && byte.atomic) return true;
  if (byte.many_atomics) {
    const bool this_block = byte.write.epoch >= block_begin_;
    return this_block ? byte.write.epoch < epoch_ : seen_.size() + 1 == block_begins_.size();
  }
  return ordered(byte.write, thread);
}

void Races::add_reader(Byte& byte, const Mark& mark, unsigned thread) {
  const bool replaces = readers_ordered(byte, thread);
  if (replaces) {
    byte.read = mark;
    byte.readers = Readers::kOne;
    return;
  }
  if (byte.read.epoch < block_begin_ || byte.readers == Readers::kSomeBlocks) {
    byte.readers = Readers::kSomeBlocks;
  } else if (byte.read.thread / kLanes != thread / kLanes || byte.readers == Readers::kSomeWarps) {
    byte.readers = Readers::kSomeWarps;
  } else {
    if (byte.readers == Readers::kOne) {
      byte.lanes = static_cast<std::uint32_t>(lanes_.size());
      lanes_.push_back({});
      lanes_.back()[byte.read.thread % kLanes] = byte.read.clock;
    }
    byte.readers = Readers::kSomeLanes;
    lanes_[byte.lanes][thread % kLanes] = mark.clock;
  }
  if (byte.readers != Readers::kSomeLanes) byte.read = mark;
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
  return {mark.epoch >= block_begin_, block_of(mark.epoch), mark.thread, wrote, mark.place};
}

Races::Verdict Races::touch(unsigned thread, const Access& access) {
  Verdict verdict;
  const Mark mark{epoch_, static_cast<std::uint16_t>(thread), clocks_of(thread)[thread % kLanes],
                  access.place};
  const bool atomic = access.kind == Access::Kind::kAtomic;
  const auto first = reinterpret_cast<std::uintptr_t>(access.at);
  for (std::uintptr_t at = first; at < first + access.bytes; ++at) {
    Byte& byte = byte_at(at);
    if (memory_ == Memory::kShared && std::max(byte.write.epoch, byte.read.epoch) < block_begin_)
      byte = {};
    if (access.kind != Access::Kind::kWrite && byte.write.epoch < block_begin_)
      verdict.uninitialized = true;
    if (!writes_ordered(byte, thread, atomic)) {
      verdict.race = earlier(byte.write, true);
    } else if (access.kind != Access::Kind::kRead && !readers_ordered(byte, thread)) {
      verdict.race = earlier(byte.read, false);
    }
    if (access.kind == Access::Kind::kRead) {
      add_reader(byte, mark, thread);
      continue;
    }
    byte.many_atomics = atomic && byte.atomic && !ordered(byte.write, thread);
    byte.atomic = atomic;
    byte.write = mark;
    byte.readers = Readers::kNone;
  }
  return verdict;
}

}  // namespace motley::simt
