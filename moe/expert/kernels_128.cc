// The loops of kernels.h in vectors of 128 bits.
#include "moe/expert/kernels_for.h"

namespace motley::moe::expert {

const Kernels kKernels128 = Loops<16>::all();

}  // namespace motley::moe::expert
