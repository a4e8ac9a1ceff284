// Chooses the loops for the processor that we run on.
#include <cstddef>

#include "moe/expert/kernels.h"

namespace motley::moe::expert {

std::span<const Kernels* const> kernels_here() noexcept {
  static constexpr const Kernels* kAll[] = {&kKernels128, &kKernels256, &kKernels512};
  const bool fused = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  const std::size_t count = !fused ? 1 : wide ? 3 : 2;
  return std::span(kAll).first(count);
}

}  // namespace motley::moe::expert
