// comm/transport/pause.h: a hint to the processor for those who look at what others write.
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

}  // namespace motley
