// wide/huge_pages.h: memory for large tables that are read at random places: it starts at a cache
// line, and from 2 MiB on at a huge page, which saves most misses of the address cache.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

namespace motley::wide {

template <class T>
struct HugePages {
  using value_type = T;
  static constexpr std::size_t kLine = 64;
  static constexpr std::size_t kPage = std::size_t{1} << 21;

  HugePages() = default;
  template <class U>
  HugePages(const HugePages<U>& /*other*/) {}  // NOLINT: allocators convert

  T* allocate(std::size_t n) {
    const std::size_t unit = n * sizeof(T) >= kPage ? kPage : kLine;
    const std::size_t bytes = (n * sizeof(T) + unit - 1) / unit * unit;
    void* const memory = std::aligned_alloc(unit, bytes);
    if (memory == nullptr) throw std::bad_alloc();
    if (unit == kPage) madvise(memory, bytes, MADV_HUGEPAGE);  // a wish: nothing fails without
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t /*n*/) noexcept { std::free(memory); }
  friend bool operator==(HugePages /*a*/, HugePages /*b*/) { return true; }
};

// The same, but a vector that grows leaves its new elements as the memory is.
template <class T>
struct UnsetHugePages : HugePages<T> {
  UnsetHugePages() = default;
  template <class U>
  UnsetHugePages(const UnsetHugePages<U>& /*other*/) {}  // NOLINT: allocators convert
  template <class U>
  void construct(U* /*place*/) noexcept {}
  template <class U, class... Args>
  void construct(U* place, Args&&... args) {
    ::new (static_cast<void*>(place)) U(std::forward<Args>(args)...);
  }
};

using Floats = std::vector<float, HugePages<float>>;

}  // namespace motley::wide
