// comm/transport/futex.h: sleeping on a word of memory that processes may share.
#pragma once

#include <atomic>
#include <cstdint>

#include "comm/clock.h"

namespace motley {

// Sleeps while `word` is `expected`, until woken, or the monotonic clock passes `until`. May return
// early.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, TimePoint until) noexcept;
// Wakes all who sleep on `word`, in any process.
void futex_wake(std::atomic<std::uint32_t>& word) noexcept;

}  // namespace motley
