// The loops of kernels.h in vectors of 512 bits.
#include "moe/expert/kernels_for.h"

namespace motley::moe::expert {

const Kernels kKernels512 = Loops<64>::all();

}  // namespace motley::moe::expert
