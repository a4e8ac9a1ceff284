// comm/transport/pause.h: hints to the processor for those who look at what others write.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#else
#include <atomic>
#endif

namespace motley {

// Between two looks: lets the other thread of the core run, and saves power.
inline void pause_briefly() noexcept {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

// The line at `address` will be written soon: other caches may give it up already.
inline void fetch_for_writing(const void* address) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

}  // namespace motley
