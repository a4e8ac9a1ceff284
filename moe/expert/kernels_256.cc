// The loops of kernels.h in vectors of 256 bits.
#include "moe/expert/kernels_for.h"

namespace motley::moe::expert {

const Kernels kKernels256 = Loops<32>::all();

}  // namespace motley::moe::expert
