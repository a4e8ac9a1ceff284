// comm/dtype.h: element types and reduction operations.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace motley {

enum class DType : std::uint8_t {
  kFloat64,
  kFloat32,
  kFloat16,
  kBFloat16,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
};

// kAverage is the sum divided by the number of ranks; integers round toward zero. kWeightedSum, of
// floating types only, is the sum of each rank's weight times its term (CallOptions::weight).
// Integer overflow wraps. kMin and kMax give NaN where any term is NaN. Averages and weighted sums
// of 16-bit floats are added in float32 and rounded once; their other sums and products are rounded
// wherever two terms meet, unless the call is deterministic.
enum class ReduceOp : std::uint8_t { kSum, kProduct, kMin, kMax, kAverage, kWeightedSum };

constexpr bool is_floating(DType dtype) noexcept { return dtype < DType::kInt8; }

constexpr std::size_t size_bytes(DType dtype) noexcept {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt64:
      return 8;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kInt16:
      return 2;
    case DType::kInt8:
      return 1;
  }
  return 0;
}

constexpr const char* name(DType dtype) noexcept {
  switch (dtype) {
    case DType::kFloat64:
      return "float64";
    case DType::kFloat32:
      return "float32";
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kInt8:
      return "int8";
    case DType::kInt16:
      return "int16";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
  }
  return "unknown";
}

constexpr const char* name(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kProduct:
      return "product";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kAverage:
      return "average";
    case ReduceOp::kWeightedSum:
      return "weighted_sum";
  }
  return "unknown";
}

// The upper half of a float32, rounded to nearest even. Arithmetic goes through float.
// Conversions are constexpr, so that device code may use them too.
struct bfloat16 {
  std::uint16_t bits = 0;

  bfloat16() = default;
  constexpr explicit bfloat16(float value) noexcept {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    const std::uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    bits = static_cast<std::uint16_t>(nan ? (u >> 16) | 0x40u : rounded);
  }
  constexpr explicit operator float() const noexcept {
    return std::bit_cast<float>(std::uint32_t{bits} << 16);
  }
};

// IEEE binary16, rounded to nearest even. Arithmetic goes through float.
struct half {
  std::uint16_t bits = 0;

  half() = default;
  constexpr explicit half(float value) noexcept {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (u >> 16) & 0x8000u;
    const std::uint32_t magnitude = u & 0x7fffffffu;
    bits = static_cast<std::uint16_t>(sign | rounded(magnitude));
  }
  constexpr explicit operator float() const noexcept {
    const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16;
    const std::uint32_t magnitude = bits & 0x7fffu;
    std::uint32_t u = (magnitude << 13) + (112u << 23);                        // normal
    if (magnitude >= 0x7c00u) u = 0x7f800000u | ((magnitude & 0x3ffu) << 13);  // infinity, NaN
    if (magnitude < 0x400u) {                                                  // subnormal
      u = std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
    }
    return std::bit_cast<float>(sign | u);
  }

 private:
  // The low 15 bits for the float with bits `u`, sign cleared.
  static constexpr std::uint32_t rounded(std::uint32_t u) noexcept {
    if (u > 0x7f800000u) return 0x7e00u;   // NaN
    if (u >= 0x477ff000u) return 0x7c00u;  // from 65520 on: infinity
    // Below 2^-14, adding 0.5 lets the float adder round to multiples of 2^-24.
    if (u < 0x38800000u) {
      return std::bit_cast<std::uint32_t>(std::bit_cast<float>(u) + 0.5f) - 0x3f000000u;
    }
    return (u - (112u << 23) + 0xfffu + ((u >> 13) & 1u)) >> 13;
  }
};

// The DType of a C++ type: `dtype_of<float> == DType::kFloat32`.
template <class T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "no DType for T");
  return DType{};
}();
template <>
inline constexpr DType dtype_of<double> = DType::kFloat64;
template <>
inline constexpr DType dtype_of<float> = DType::kFloat32;
template <>
inline constexpr DType dtype_of<half> = DType::kFloat16;
template <>
inline constexpr DType dtype_of<bfloat16> = DType::kBFloat16;
template <>
inline constexpr DType dtype_of<std::int8_t> = DType::kInt8;
template <>
inline constexpr DType dtype_of<std::int16_t> = DType::kInt16;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::kInt32;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::kInt64;

}  // namespace motley
