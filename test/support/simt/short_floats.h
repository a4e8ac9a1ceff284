// test/support/simt/short_floats.h: CUDA's 16-bit floats, as far as atomics and packing need them.
#pragma once

#include <cstdint>

namespace motley::simt {

// Adds at one address after another, as a device does, and rounds each sum. Returns what was there.
struct ShortPair {
  std::uint16_t x, y;
};
enum class ShortFloat { kHalf, kBFloat16 };
std::uint16_t atomic_add(ShortFloat kind, std::uint16_t* at, std::uint16_t value);
ShortPair atomic_add_each(ShortFloat kind, std::uint16_t* at, ShortPair value);

}  // namespace motley::simt

// NOLINTBEGIN: the names are CUDA's

struct __half {
  std::uint16_t bits;
};
struct alignas(4) __half2 {
  __half x, y;
};
struct __nv_bfloat16 {
  std::uint16_t bits;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return {bits}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }

inline __half atomicAdd(__half* at, __half value) {
  using namespace motley::simt;
  return {atomic_add(ShortFloat::kHalf, &at->bits, value.bits)};
}
inline __half2 atomicAdd(__half2* at, __half2 value) {
  using namespace motley::simt;
  const ShortPair old =
      atomic_add_each(ShortFloat::kHalf, &at->x.bits, {value.x.bits, value.y.bits});
  return {{old.x}, {old.y}};
}
inline __nv_bfloat16 atomicAdd(__nv_bfloat16* at, __nv_bfloat16 value) {
  using namespace motley::simt;
  return {atomic_add(ShortFloat::kBFloat16, &at->bits, value.bits)};
}
inline __nv_bfloat162 atomicAdd(__nv_bfloat162* at, __nv_bfloat162 value) {
  using namespace motley::simt;
  const ShortPair old =
      atomic_add_each(ShortFloat::kBFloat16, &at->x.bits, {value.x.bits, value.y.bits});
  return {{old.x}, {old.y}};
}

// NOLINTEND
