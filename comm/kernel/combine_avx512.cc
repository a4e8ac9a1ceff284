// Compiled for AVX-512, and called only where the processor has it.
#include "comm/kernel/combine_vector.h"

namespace motley {

CombinePart combine_512(DType dtype, ReduceOp op) noexcept { return vector_part<64>(dtype, op); }

}  // namespace motley
