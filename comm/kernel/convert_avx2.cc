// Compiled for AVX2, and called only where the processor has it.
#include "comm/kernel/convert_vector.h"

namespace motley {

ConvertPart convert_256(DType to, DType from, double factor) noexcept {
  return ConvertVectors<32>::part(to, from, factor);
}
QuantizeParts quantize_256(DType dtype) noexcept { return ConvertVectors<32>::parts(dtype); }

}  // namespace motley
