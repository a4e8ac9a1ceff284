// comm/kernel/quantize_ops.h: what quantize.h does to one block and to one element, once for CPU
// and GPU.
#pragma once

#include <bit>
#include <cassert>
#include <cstdint>

#include "comm/dtype.h"
#include "comm/kernel/ops.h"
#include "comm/quantize.h"

namespace motley {

constexpr std::uint32_t kInfinityBits = 0x7f800000u;

// Ordered as magnitudes are; of infinities and NaN kInfinityBits and more.
constexpr std::uint32_t magnitude_bits(float x) {
  return std::bit_cast<std::uint32_t>(x) & 0x7fffffffu;
}

// `most` is the largest of magnitude_bits() of a block.
constexpr float block_scale(std::uint32_t most) {
  if (most >= kInfinityBits) return std::bit_cast<float>(0x7fc00000u);  // NaN
  const float scale = std::bit_cast<float>(most) / 127.0f;
  if (most == 0 || scale >= 0x1p-126f) return scale;
  return 0x1p-126f;
}

// 0 where all values of the block shall be 0: for the scales 0 and NaN.
constexpr float inverse_scale(float scale) { return scale > 0 ? 1 / scale : 0.0f; }

// Adding 1.5 * 2^23 lets the float adder round to whole numbers; they are then its low bits.
constexpr std::int8_t quantized(float x, float inverse) {
  if (inverse == 0) return 0;
  const auto bits = std::bit_cast<std::uint32_t>(x * inverse + 0x1.8p23f);
  return static_cast<std::int8_t>(static_cast<std::uint8_t>(bits));
}

template <class T>
constexpr T dequantized(std::int8_t value, float scale) {
  return cast<T>(static_cast<float>(value) * scale);
}

// Calls body.template operator()<T>() with the type of `dtype`, float32 or a 16-bit float.
template <class Body>
void dispatch_float(DType dtype, Body&& body) {
  assert(dtype != DType::kFloat64 && is_floating(dtype));
  if (dtype == DType::kFloat32) return body.template operator()<float>();
  if (dtype == DType::kFloat16) return body.template operator()<half>();
  body.template operator()<bfloat16>();
}

inline void check_quantized([[maybe_unused]] const Quantized& q,
                            [[maybe_unused]] ConstView floats) {
  assert(q.block == 64 || q.block == 128);
  assert(q.values.count == floats.count && q.values.dtype == DType::kInt8);
  assert(q.scales.count == scale_count(floats.count, q.block));
}

}  // namespace motley
