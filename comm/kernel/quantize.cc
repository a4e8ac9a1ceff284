#include "comm/quantize.h"

#include <algorithm>

#include "comm/kernel/convert_parts.h"
#include "comm/kernel/quantize_ops.h"

namespace motley {

void quantize(const Quantized& out, ConstView in) {
  check_quantized(out, in);
  const std::size_t n = in.count, block = static_cast<std::size_t>(out.block);
  std::int8_t* const __restrict values = out.values.as<std::int8_t>().data();
  float* const scales = out.scales.as<float>().data();
  const QuantizeParts parts = quantize_parts(in.dtype);
  dispatch_float(in.dtype, [&]<class T>() {
    const T* const __restrict from = in.as<const T>().data();
    for (std::size_t first = 0; first < n; first += block) {
      const std::size_t end = std::min(first + block, n);
      if (end - first == block) {
        const auto* const bytes = reinterpret_cast<const std::byte*>(from + first);
        const float scale = block_scale(parts.most(bytes, block));
        scales[first / block] = scale;
        parts.quantize(values + first, bytes, block, inverse_scale(scale));
        continue;
      }
      std::uint32_t most = 0;
      for (std::size_t i = first; i < end; ++i)
        most = std::max(most, magnitude_bits(cast<float>(from[i])));
      const float scale = block_scale(most), inverse = inverse_scale(scale);
      scales[first / block] = scale;
      for (std::size_t i = first; i < end; ++i)
        values[i] = quantized(cast<float>(from[i]), inverse);
    }
  });
}

void dequantize(View out, const Quantized& in) {
  check_quantized(in, out);
  const std::size_t n = out.count, block = static_cast<std::size_t>(in.block);
  const std::int8_t* const __restrict values = in.values.as<std::int8_t>().data();
  const float* const scales = in.scales.as<float>().data();
  const QuantizeParts parts = quantize_parts(out.dtype);
  dispatch_float(out.dtype, [&]<class T>() {
    T* const __restrict to = out.as<T>().data();
    for (std::size_t first = 0; first < n; first += block) {
      const std::size_t end = std::min(first + block, n);
      const float scale = scales[first / block];
      if (end - first == block) {
        parts.dequantize(reinterpret_cast<std::byte*>(to + first), values + first, block, scale);
        continue;
      }
      for (std::size_t i = first; i < end; ++i) to[i] = dequantized<T>(values[i], scale);
    }
  });
}

}  // namespace motley
