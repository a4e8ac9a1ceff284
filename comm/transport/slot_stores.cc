#include "comm/transport/slot_stores.h"

#include <algorithm>
#include <cstring>

#include "comm/kernel/combine.h"

namespace motley {

void SlotStores::copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  if (bytes == 0) return;
  const bool is_timed = bytes >= kLeastTimed;
  const TimePoint start = is_timed ? clock_.now() : TimePoint{};
  if (around_ && !(is_timed && start >= next_try_)) {
    copy_stream(to, from, bytes);
    unfinished_ = true;
    return;
  }
  std::memcpy(to, from, bytes);
  if (!is_timed) return;
  const TimePoint end = clock_.now();
  timed(bytes, end - start, end);
}

void SlotStores::finish() noexcept {
  if (unfinished_) streams_done();
  unfinished_ = false;
}

void SlotStores::timed(std::size_t bytes, Duration took, TimePoint now) noexcept {
  constexpr std::size_t kLine = 64;
  if (took <= kFarLine * (bytes / kLine)) {
    around_ = false;
    slow_ = 0;
    pause_ = kFirstTry;
    return;
  }
  if (!around_ && ++slow_ < kSlowInTurn) return;
  if (around_) pause_ = std::min(2 * pause_, kRarestTry);
  around_ = true;
  slow_ = 0;
  next_try_ = now + pause_;
}

}  // namespace motley
