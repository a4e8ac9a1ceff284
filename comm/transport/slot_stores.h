// comm/transport/slot_stores.h: how a rank lays out data that ranks on other cores read next.
//
// Slots are used again and again, so the lines that a store goes to are in the cache of who read
// them last. Between cores that share a cache taking them back is cheap, and readers find what is
// new there. Between cores that are far apart a store waits for each line, at a tenth of the speed
// of one that goes around the caches. How far apart they are cannot be asked, and in a virtual
// machine it changes from second to second; but the stores tell: each long one is timed.
#pragma once

#include <cstddef>

#include "comm/clock.h"

namespace motley {

class SlotStores {
 public:
  explicit SlotStores(Clock& clock) noexcept : clock_(clock) {}

  // As memcpy, to slots. Call finish() before telling others.
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;
  void finish() noexcept;

  // Whether the next short copy goes around the caches.
  bool go_around() const noexcept { return around_; }
  // What copy() does after a timed store through the caches, which has just ended.
  void timed(std::size_t bytes, Duration took, TimePoint now) noexcept;

  // Shorter copies are not timed: that would take as long as they do.
  static constexpr std::size_t kLeastTimed = 16 << 10;
  // For a line of 64 bytes: some 7 ns where cores share a cache, 28 where they are far apart.
  static constexpr Duration kFarLine = std::chrono::nanoseconds(14);
  // So many stores in turn must be slow: one alone may have lost its core, or met a page fault.
  static constexpr int kSlowInTurn = 3;
  // After such a time one store goes through the caches again, to see whether that has become
  // cheap; then, while it has not, after twice the time and so on.
  static constexpr Duration kFirstTry = std::chrono::milliseconds(1);
  static constexpr Duration kRarestTry = std::chrono::milliseconds(16);

 private:
  Clock& clock_;
  bool around_ = false;
  bool unfinished_ = false;
  int slow_ = 0;  // in turn
  Duration pause_ = kFirstTry;
  TimePoint next_try_{};
};

}  // namespace motley
