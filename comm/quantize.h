// comm/quantize.h: floats as int8 with one scale for each block of them: 1.03 bytes an element.
//
//   std::vector<std::int8_t> values(n);
//   std::vector<float> scales(scale_count(n, 128));
//   quantize({.values = values, .scales = scales, .block = 128}, gradients);
//   dequantize(gradients, {.values = values, .scales = scales, .block = 128});
#pragma once

#include "comm/device.h"
#include "comm/view.h"

namespace motley {

// Element i is values[i] * scales[i / block].
//   values  [n] int8, in [-127, 127]    scales  [scale_count(n, block)] float32
struct Quantized {
  View values;
  View scales;
  int block = 128;  // elements that share a scale: 64 or 128; the last block may be shorter
};

constexpr std::size_t scale_count(std::size_t n, int block) noexcept {
  const auto size = static_cast<std::size_t>(block);
  return n / size + (n % size != 0);
}

// The scale of a block is its largest magnitude / 127, but at least 2^-126; values are rounded to
// nearest even. An element comes back with an error of at most (0.5 + 2^-15) scales, and of half a
// unit in the last place more if it comes back as a 16-bit float.
//   in  [n] float32, float16 or bfloat16
// A block of zeros has scale 0 and comes back as zeros, all positive. A block with an infinity or
// NaN anywhere has scale NaN and comes back as NaN throughout.
void quantize(const Quantized& out, ConstView in);
void dequantize(View out, const Quantized& in);

// The same on device memory, in stream order, with the same bits. Fast where `in` (dequantize: out)
// lies at a multiple of four of its elements and values at a multiple of 4 bytes.
void quantize_on_device(const Quantized& out, ConstView in, StreamRef stream);
void dequantize_on_device(View out, const Quantized& in, StreamRef stream);

}  // namespace motley
