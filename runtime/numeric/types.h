// runtime/numeric/types.h: calls a body with the C++ type of a dtype.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "comm/dtype.h"
#include "comm/error.h"

namespace motley::runtime {

// Calls body(T{}) for the type of `dtype`.
template <class Body>
void with_type(DType dtype, Body body) {
  switch (dtype) {
    case DType::kFloat64:
      return body(double{});
    case DType::kFloat32:
      return body(float{});
    case DType::kFloat16:
      return body(half{});
    case DType::kBFloat16:
      return body(bfloat16{});
    case DType::kInt8:
      return body(std::int8_t{});
    case DType::kInt16:
      return body(std::int16_t{});
    case DType::kInt32:
      return body(std::int32_t{});
    case DType::kInt64:
      return body(std::int64_t{});
  }
}

// The same; throws kInvalid, as `who`, for integers.
template <class Body>
void with_floating(const char* who, DType dtype, Body body) {
  if (!is_floating(dtype)) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("{}: values of {}. Use a floating type.", who, name(dtype)));
  }
  with_type(dtype, [&]<class T>(T zero) {
    if constexpr (!std::is_integral_v<T>) body(zero);
  });
}

// What T is added in: itself, or float for 16-bit floats; integers unsigned, so that they wrap.
template <class T>
struct WideOf {
  using type = float;
};
template <>
struct WideOf<double> {
  using type = double;
};
template <std::integral T>
struct WideOf<T> {
  using type = std::uint64_t;
};
template <class T>
using Wide = typename WideOf<T>::type;

}  // namespace motley::runtime
