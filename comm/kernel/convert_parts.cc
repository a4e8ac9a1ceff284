#include "comm/kernel/convert_parts.h"

#include "comm/kernel/convert_vector.h"
#include "comm/kernel/cpu.h"

namespace motley {

ConvertPart convert_part(DType to, DType from, double factor) noexcept {
  switch (vector_width()) {
    case VectorWidth::k512:
      return convert_512(to, from, factor);
    case VectorWidth::k256:
      return convert_256(to, from, factor);
    case VectorWidth::k128:
      break;
  }
  return ConvertVectors<16>::part(to, from, factor);
}

QuantizeParts quantize_parts(DType dtype) noexcept {
  switch (vector_width()) {
    case VectorWidth::k512:
      return quantize_512(dtype);
    case VectorWidth::k256:
      return quantize_256(dtype);
    case VectorWidth::k128:
      break;
  }
  return ConvertVectors<16>::parts(dtype);
}

}  // namespace motley
