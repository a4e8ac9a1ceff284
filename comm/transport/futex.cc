#include "comm/transport/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace motley {

static_assert(sizeof(std::atomic<std::uint32_t>) == 4 &&
              std::atomic<std::uint32_t>::is_always_lock_free);

// FUTEX_WAIT_BITSET takes an absolute time on CLOCK_MONOTONIC, which is steady_clock's.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected,
                TimePoint until) noexcept {
  const auto ns = until.time_since_epoch().count();
  if (ns <= 0) return;
  const timespec deadline{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, expected, &deadline, nullptr,
          FUTEX_BITSET_MATCH_ANY);
}

void futex_wake(std::atomic<std::uint32_t>& word) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace motley
