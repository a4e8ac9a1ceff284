#include "test/support/heap_count.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

namespace {

std::atomic<std::uint64_t> allocations{0};
std::atomic<std::int64_t> blocks{0};
std::atomic<std::int64_t> bytes{0};
std::atomic<std::thread::id> watched{};  // the thread of ThreadHeapCount, if there is one
std::atomic<std::uint64_t> watched_bytes{0};

}  // namespace

// Not inlined: GCC 12 would take them for no pair.
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  void* const memory = std::malloc(size);
  if (memory == nullptr) return nullptr;
  ++allocations;
  ++blocks;
  bytes += static_cast<std::int64_t>(malloc_usable_size(memory));
  if (watched.load() == std::this_thread::get_id()) watched_bytes += size;
  return memory;
}
[[gnu::noinline]] void* operator new(std::size_t size) {
  if (void* const memory = operator new(size, std::nothrow)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  if (memory == nullptr) return;
  --blocks;
  bytes -= static_cast<std::int64_t>(malloc_usable_size(memory));
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  operator delete(memory);
}
[[gnu::noinline]] void operator delete(void* memory, const std::nothrow_t&) noexcept {
  operator delete(memory);
}

namespace motley::test {

HeapCount heap_count() noexcept { return {allocations, blocks, bytes}; }

ThreadHeapCount::ThreadHeapCount() noexcept {
  watched_bytes = 0;
  watched = std::this_thread::get_id();
}
ThreadHeapCount::~ThreadHeapCount() { watched = std::thread::id(); }
std::uint64_t ThreadHeapCount::bytes() const noexcept { return watched_bytes; }

}  // namespace motley::test
