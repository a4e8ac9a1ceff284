// Processors whose wider vectors we do not know.
#include "moe/expert/kernels.h"

namespace motley::moe::expert {

std::span<const Kernels* const> kernels_here() noexcept {
  static constexpr const Kernels* kAll[] = {&kKernels128};
  return kAll;
}

}  // namespace motley::moe::expert
