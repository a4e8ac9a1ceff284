// comm/kernel/ops.h: what a reduction does to two elements, once for CPU and GPU: nvcc compiles
// constexpr functions for the device too (--expt-relaxed-constexpr).
#pragma once

#include <cassert>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "comm/dtype.h"

namespace motley {

// The type in which T is added and multiplied: float for the 16-bit types; unsigned for integers,
// so that overflow wraps instead of being undefined.
template <class T>
struct Arithmetic {
  using type = T;
};
template <>
struct Arithmetic<half> {
  using type = float;
};
template <>
struct Arithmetic<bfloat16> {
  using type = float;
};
template <class T>
requires std::is_integral_v<T>
struct Arithmetic<T> {
  // At least 32 bits: products of narrower unsigned types would be promoted to signed int.
  using type = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
};

template <class T>
inline constexpr bool kIs16BitFloat = std::is_same_v<T, half> || std::is_same_v<T, bfloat16>;

// The type in which many terms are combined before they are rounded to T.
template <class T>
using Wide = std::conditional_t<kIs16BitFloat<T>, float, T>;

// static_cast<To>(x), in one instruction where a device has one for 16-bit floats: the same but for
// the payload of NaN.
template <class To, class From>
constexpr To cast(From x) {
#ifdef __CUDA_ARCH__
  if (!std::is_constant_evaluated()) {
    if constexpr (std::is_same_v<From, half> && std::is_same_v<To, float>) {
      float wide;
      asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
      return wide;
    } else if constexpr (std::is_same_v<From, float> && std::is_same_v<To, half>) {
      half narrow;
      asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(x));
      return narrow;
    } else if constexpr (std::is_same_v<From, float> && std::is_same_v<To, bfloat16>) {
      bfloat16 narrow;
      asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(x));
      return narrow;
    }
  }
#endif
  return static_cast<To>(x);
}

struct Sum {
  template <class T>
  constexpr T operator()(T a, T b) const {
    using A = typename Arithmetic<T>::type;
    return cast<T>(cast<A>(a) + cast<A>(b));
  }
};

struct Product {
  template <class T>
  constexpr T operator()(T a, T b) const {
    using A = typename Arithmetic<T>::type;
    return cast<T>(cast<A>(a) * cast<A>(b));
  }
};

template <class T>
using Comparable = std::conditional_t<std::is_integral_v<T>, T, typename Arithmetic<T>::type>;

// NaN wins in Min and Max: comparisons with it are false, and x != x holds for NaN alone.
struct Min {
  template <class T>
  constexpr T operator()(T a, T b) const {
    const auto x = cast<Comparable<T>>(a);
    const auto y = cast<Comparable<T>>(b);
    return x < y || x != x ? a : b;
  }
};

struct Max {
  template <class T>
  constexpr T operator()(T a, T b) const {
    const auto x = cast<Comparable<T>>(a);
    const auto y = cast<Comparable<T>>(b);
    return x > y || x != x ? a : b;
  }
};

// x / divisor; integers round toward zero.
template <class T>
constexpr T divided(T x, int divisor) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(std::int64_t{x} / divisor);
  } else {
    using A = typename Arithmetic<T>::type;
    return cast<T>(cast<A>(x) / static_cast<A>(divisor));
  }
}

struct Divided {
  int divisor;
  template <class T>
  constexpr T operator()(T x) const {
    return divided(x, divisor);
  }
};

template <class To>
struct Converted {
  template <class From>
  constexpr To operator()(From x) const {
    return cast<To>(cast<typename Arithmetic<From>::type>(x));
  }
};

template <class To, class A>
struct Scaled {
  A factor;
  template <class From>
  constexpr To operator()(From x) const {
    return cast<To>(factor * cast<A>(x));
  }
};

// Calls body.template operator()<T>() with the C++ type of `dtype`.
template <class Body>
void dispatch(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::kFloat64:
      return body.template operator()<double>();
    case DType::kFloat32:
      return body.template operator()<float>();
    case DType::kFloat16:
      return body.template operator()<half>();
    case DType::kBFloat16:
      return body.template operator()<bfloat16>();
    case DType::kInt8:
      return body.template operator()<std::int8_t>();
    case DType::kInt16:
      return body.template operator()<std::int16_t>();
    case DType::kInt32:
      return body.template operator()<std::int32_t>();
    case DType::kInt64:
      return body.template operator()<std::int64_t>();
  }
}

// Calls body.template operator()<To, From>(functor) with the functor that converts one element of
// `from`, or scales it by a factor other than 1. The dtypes are alike, or one a 16-bit float and
// the other float32.
template <class Body>
void dispatch_convert(DType to, DType from, double factor, Body&& body) {
  const auto apply = [&]<class To, class From>() {
    using A = typename Arithmetic<From>::type;
    if (factor == 1) return body.template operator()<To, From>(Converted<To>{});
    return body.template operator()<To, From>(Scaled<To, A>{static_cast<A>(factor)});
  };
  dispatch(from, [&]<class From>() {
    if (to == from) return apply.template operator()<From, From>();
    if constexpr (kIs16BitFloat<From>) {
      assert(to == DType::kFloat32);
      return apply.template operator()<float, From>();
    } else if constexpr (std::is_same_v<From, float>) {
      assert(to == DType::kFloat16 || to == DType::kBFloat16);
      if (to == DType::kFloat16) return apply.template operator()<half, float>();
      return apply.template operator()<bfloat16, float>();
    }
    assert(false && "no conversion between these types");
  });
}

// Calls body.template operator()<T>(functor); kAverage and kWeightedSum reduce as sums:
// divide() follows, convert() went before.
template <class Body>
void dispatch(DType dtype, ReduceOp op, Body&& body) {
  dispatch(dtype, [&]<class T>() {
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage:
      case ReduceOp::kWeightedSum:
        return body.template operator()<T>(Sum{});
      case ReduceOp::kProduct:
        return body.template operator()<T>(Product{});
      case ReduceOp::kMin:
        return body.template operator()<T>(Min{});
      case ReduceOp::kMax:
        return body.template operator()<T>(Max{});
    }
  });
}

}  // namespace motley
