// Compiled for AVX-512, and called only where the processor has it.
#include "comm/kernel/convert_vector.h"

namespace motley {

ConvertPart convert_512(DType to, DType from, double factor) noexcept {
  return ConvertVectors<64>::part(to, from, factor);
}
QuantizeParts quantize_512(DType dtype) noexcept { return ConvertVectors<64>::parts(dtype); }

}  // namespace motley
