#include "wide/kernel/kernels.h"

namespace motley::wide {

Kernels make_kernels_plain(const ModelOptions& options, const Layout& layout);
Kernels make_kernels_avx2(const ModelOptions& options, const Layout& layout);
Kernels make_kernels_avx512(const ModelOptions& options, const Layout& layout);

Lanes widest_lanes() noexcept {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return Lanes::k4;
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return wide ? Lanes::k16 : Lanes::k8;
}

Kernels make_kernels(const ModelOptions& options, const Layout& layout, Lanes lanes) {
  switch (lanes) {
    case Lanes::k16:
      return make_kernels_avx512(options, layout);
    case Lanes::k8:
      return make_kernels_avx2(options, layout);
    default:
      return make_kernels_plain(options, layout);
  }
}

}  // namespace motley::wide
