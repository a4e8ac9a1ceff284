// Compiled for AVX2 and FMA, and called only where the processor has them.
#include "wide/kernel/loops_for.h"
#include "wide/kernel/x86.h"

namespace motley::wide {
namespace {

struct Avx2 : UpTo8Lanes {
  static constexpr int kLanes = 8;
};

}  // namespace

Kernels make_kernels_avx2(const ModelOptions& options, const Layout& layout) {
  return make_kernels_for<Avx2>(options, layout);
}

}  // namespace motley::wide
