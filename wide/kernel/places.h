// wide/kernel/places.h: where the linear weights of one row are, for an A (pack.h), where some
// slots are in a copy of the thread's own (replicas.h). Found once for all that reads and writes
// them, and without a branch: which of a row's slots are hot is not to be predicted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "wide/kernel/kernels.h"

namespace motley::wide {

template <int n>
struct SlotsOf {
  using type [[gnu::vector_size(4 * n)]] = unsigned;
  using Wide [[gnu::vector_size(8 * n)]] = unsigned long;
};

// kStride: floats of a slot. At most kMost features.
template <class A, std::size_t kStride, std::size_t kMost>
class Places {
 public:
  [[gnu::always_inline]] void find(const std::uint32_t* slots, std::size_t n, const Tables& t) {
    const auto cold = reinterpret_cast<std::uintptr_t>(t.linear);
    const auto hot = reinterpret_cast<std::uintptr_t>(t.hot_linear);
    if (n < kLanes) {
      for (std::size_t i = 0; i < n; ++i) {
        const auto is_hot = std::uintptr_t{0} - static_cast<std::uintptr_t>(slots[i] < t.hot);
        places_[i] = cold + ((hot - cold) & is_hot) + slots[i] * kBytes;
      }
      return;
    }
    for (std::size_t i = 0; i + kLanes < n; i += kLanes) find_all(slots, i, t.hot, cold, hot);
    find_all(slots, n - kLanes, t.hot, cold, hot);  // some for the second time
  }
  [[gnu::always_inline]] float* operator()(std::size_t i) const {
    return reinterpret_cast<float*>(places_[i]);
  }

 private:
  static constexpr std::size_t kLanes = A::kLanes / 2;
  static constexpr std::uintptr_t kBytes = kStride * sizeof(float);
  using Slots = typename SlotsOf<kLanes>::type;
  using Wide = typename SlotsOf<kLanes>::Wide;
  static_assert(sizeof(std::uintptr_t) == sizeof(std::uint64_t));

  [[gnu::always_inline]] void find_all(const std::uint32_t* slots, std::size_t i, std::uint32_t n,
                                       std::uintptr_t cold, std::uintptr_t hot) {
    Slots some;
    std::memcpy(&some, slots + i, sizeof some);
    const Wide wide = __builtin_convertvector(some, Wide);
    const Wide is_hot = Wide(wide < (Wide{} + n));
    const Wide places = cold + ((hot - cold) & is_hot) + wide * kBytes;
    std::memcpy(&places_[i], &places, sizeof places);
  }

  alignas(64) std::uintptr_t places_[kMost];
};

}  // namespace motley::wide
