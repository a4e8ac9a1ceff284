// For builds that are searched for errors, of which the loops are most: the same source with the
// narrowest and the widest vectors, without those between.
#include "wide/kernel/kernels.h"

namespace motley::wide {

Kernels make_kernels_plain(const ModelOptions& options, const Layout& layout);
Kernels make_kernels_avx512(const ModelOptions& options, const Layout& layout);

Lanes widest_lanes() noexcept {
  const bool wide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return wide ? Lanes::k16 : Lanes::k4;
}

Kernels make_kernels(const ModelOptions& options, const Layout& layout, Lanes lanes) {
  return lanes == Lanes::k16 ? make_kernels_avx512(options, layout)
                             : make_kernels_plain(options, layout);
}

}  // namespace motley::wide
