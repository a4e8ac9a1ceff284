// test/support/heap_count.h: what a program takes from the heap. Each `new` counts in programs that
// link heap_count.cc.
#pragma once

#include <cstdint>

namespace motley::test {

struct HeapCount {
  std::uint64_t allocations;  // so far
  std::int64_t blocks;        // of memory in use
  std::int64_t bytes;         // in them
};

HeapCount heap_count() noexcept;  // of all threads

// The bytes that the thread which makes it asks for from then on. One at a time.
class ThreadHeapCount {
 public:
  ThreadHeapCount() noexcept;
  ThreadHeapCount(const ThreadHeapCount&) = delete;
  ThreadHeapCount& operator=(const ThreadHeapCount&) = delete;
  ~ThreadHeapCount();
  std::uint64_t bytes() const noexcept;
};

}  // namespace motley::test
