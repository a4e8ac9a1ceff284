// comm/kernel/combine_vector.h: the loops behind combine.h, for vectors of kBytes bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "comm/kernel/combine.h"
#include "comm/kernel/ops.h"
#include "comm/kernel/vectors.h"

namespace motley {

// Integers are added and multiplied as unsigned ones: overflow wraps.
template <class T, class Op>
using Lane = typename std::conditional_t<std::is_integral_v<T> && (std::is_same_v<Op, Sum> ||
                                                                   std::is_same_v<Op, Product>),
                                         std::make_unsigned<T>, std::type_identity<T>>::type;

// How floats are compared as integers: where GCC 12 compares floats, it leaves the vectors.
template <class T>
struct Bits {
  using Word = T;  // integers are compared as they are
};
template <>
struct Bits<float> {
  using Word = std::int32_t;
  static constexpr Word kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;
};
template <>
struct Bits<double> {
  using Word = std::int64_t;
  static constexpr Word kMagnitude = 0x7fffffffffffffff, kInfinity = 0x7ff0000000000000;
};

// low: a = Min{}(a, b); else a = Max{}(a, b). As there, NaN wins, and of equal ones b.
template <class T, std::size_t kBytes, bool kLow, class V>
[[gnu::always_inline]] inline void extreme(V& a, const V& b) noexcept {
  if constexpr (std::is_integral_v<T>) {
    if constexpr (kLow) {
      a = a < b ? a : b;
    } else {
      a = a > b ? a : b;
    }
  } else {
    using B = Bits<T>;
    using Words = Vector<typename B::Word, kBytes>;
    const auto x = reinterpret_cast<Words>(a), y = reinterpret_cast<Words>(b);
    const Words ax = x & B::kMagnitude, ay = y & B::kMagnitude;
    const Words sx = x < 0 ? x ^ B::kMagnitude : x, sy = y < 0 ? y ^ B::kMagnitude : y;
    Words chosen;
    if constexpr (kLow) {
      chosen = sx < sy ? x : y;
    } else {
      chosen = sx > sy ? x : y;
    }
    chosen = (ax | ay) == 0 ? y : chosen;
    chosen = ay > B::kInfinity ? y : chosen;
    chosen = ax > B::kInfinity ? x : chosen;
    a = reinterpret_cast<V>(chosen);
  }
}

template <class Op, class T, std::size_t kBytes, class V>
[[gnu::always_inline]] inline void apply(V& a, const V& b) noexcept {
  if constexpr (std::is_same_v<Op, Sum>) {
    a = a + b;
  } else if constexpr (std::is_same_v<Op, Product>) {
    a = a * b;
  } else {
    extreme<T, kBytes, std::is_same_v<Op, Min>>(a, b);
  }
}

// As many elements of combine() as fill whole vectors; returns how many.
template <class T, class Op, std::size_t kBytes, bool kWeighted>
std::size_t combine_vectors(std::byte* out, const Terms& terms, std::size_t n) noexcept {
  const int count = terms.count;
  std::size_t i = 0;
  if constexpr (kIs16BitFloat<T>) {
    using Floats = Vector<float, kBytes>;
    using Words = Vector<std::int32_t, kBytes>;
    using Halves = Vector<std::uint16_t, kBytes / 2>;
    constexpr std::size_t kLanes = kBytes / sizeof(float);
    for (; i + kLanes <= n; i += kLanes) {
      Floats sum, next;
      widen<T, Floats, Words, Halves>(sum, terms.sources[0] + i * sizeof(T));
      if constexpr (kWeighted) sum = sum * static_cast<float>(terms.weights[0]);
      for (int s = 1; s < count; ++s) {
        widen<T, Floats, Words, Halves>(next, terms.sources[s] + i * sizeof(T));
        if constexpr (kWeighted) next = next * static_cast<float>(terms.weights[s]);
        apply<Op, float, kBytes>(sum, next);
      }
      if (terms.average) sum = sum / static_cast<float>(count);
      narrow<T, Floats, Words, Halves>(out + i * sizeof(T), sum);
    }
  } else {
    using V = Vector<Lane<T, Op>, kBytes>;
    constexpr std::size_t kLanes = 2 * kBytes / sizeof(T);      // two vectors a turn
    const bool whole = terms.average && std::is_integral_v<T>;  // no vector divides integers
    const auto load_both = [&](V & a, V & b, int s) __attribute__((always_inline)) {
      load(a, terms.sources[s] + i * sizeof(T));
      load(b, terms.sources[s] + i * sizeof(T) + kBytes);
      if constexpr (kWeighted) a = a * static_cast<T>(terms.weights[s]);
      if constexpr (kWeighted) b = b * static_cast<T>(terms.weights[s]);
    };
    for (; !whole && i + kLanes <= n; i += kLanes) {
      V a, b, x, y;
      load_both(a, b, 0);
      for (int s = 1; s < count; ++s) {
        load_both(x, y, s);
        apply<Op, T, kBytes>(a, x);
        apply<Op, T, kBytes>(b, y);
      }
      if constexpr (!std::is_integral_v<T>) {
        if (terms.average) a = a / static_cast<T>(count);
        if (terms.average) b = b / static_cast<T>(count);
      }
      std::memcpy(out + i * sizeof(T), &a, kBytes);
      std::memcpy(out + i * sizeof(T) + kBytes, &b, kBytes);
    }
  }
  return i;
}

// The combine_vectors of a dtype and operation.
template <std::size_t kBytes>
CombinePart vector_part(DType dtype, ReduceOp op) noexcept {
  CombinePart part = nullptr;
  dispatch(dtype, op, [&]<class T>(auto functor) {
    part = combine_vectors<T, decltype(functor), kBytes, false>;
    if constexpr (!std::is_integral_v<T>) {
      if (op == ReduceOp::kWeightedSum) part = combine_vectors<T, Sum, kBytes, true>;
    }
  });
  return part;
}

}  // namespace motley
