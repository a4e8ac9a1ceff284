// comm/kernel/convert_parts.h: the loops behind convert.h and quantize.h for 16-bit floats and int8
// on the CPU, for each width of vectors. All give the bits of the functors, one element at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/dtype.h"

namespace motley {

// out[i] = factor * in[i] for elements [0, k) of n; returns k. In place, if types are alike.
using ConvertPart = std::size_t (*)(std::byte* out, const std::byte* in, std::size_t n,
                                    float factor) noexcept;

// Of float32 or a 16-bit float; n is a multiple of kStep.
struct QuantizeParts {
  static constexpr std::size_t kStep = 64;

  // The largest of magnitude_bits() (quantize_ops.h).
  std::uint32_t (*most)(const std::byte* in, std::size_t n) noexcept = nullptr;
  void (*quantize)(std::int8_t* out, const std::byte* in, std::size_t n,
                   float inverse) noexcept = nullptr;
  void (*dequantize)(std::byte* out, const std::int8_t* in, std::size_t n,
                     float scale) noexcept = nullptr;
};

// Of types that convert.h takes, one of them a 16-bit float; those for the vectors of this
// processor.
ConvertPart convert_part(DType to, DType from, double factor) noexcept;
QuantizeParts quantize_parts(DType dtype) noexcept;

// For vectors of 32 and 64 bytes; null where the processor has none.
ConvertPart convert_256(DType to, DType from, double factor) noexcept;
ConvertPart convert_512(DType to, DType from, double factor) noexcept;
QuantizeParts quantize_256(DType dtype) noexcept;
QuantizeParts quantize_512(DType dtype) noexcept;

}  // namespace motley
