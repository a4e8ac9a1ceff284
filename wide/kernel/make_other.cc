#include "wide/kernel/kernels.h"

namespace motley::wide {

Kernels make_kernels_plain(const ModelOptions& options, const Layout& layout);

Lanes widest_lanes() noexcept { return Lanes::k4; }

Kernels make_kernels(const ModelOptions& options, const Layout& layout, Lanes /*lanes*/) {
  return make_kernels_plain(options, layout);
}

}  // namespace motley::wide
