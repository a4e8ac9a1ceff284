// Compiled for AVX2, and called only where the processor has it.
#include "comm/kernel/combine_vector.h"

namespace motley {

CombinePart combine_256(DType dtype, ReduceOp op) noexcept { return vector_part<32>(dtype, op); }

}  // namespace motley
