// Compiled for AVX-512, and called only where the processor has it.
#include "wide/kernel/loops_for.h"
#include "wide/kernel/x86.h"

namespace motley::wide {
namespace {

struct Avx512 : UpTo8Lanes {
  static constexpr int kLanes = 16;
  using V16 = Vector<16>;
  using UpTo8Lanes::inverse_root;
  using UpTo8Lanes::larger;
  using UpTo8Lanes::root;
  using UpTo8Lanes::smaller;
  [[gnu::always_inline]] static V16 root(V16 v) { return V16(_mm512_sqrt_ps(v)); }
  [[gnu::always_inline]] static V16 inverse_root(V16 v) { return V16(_mm512_rsqrt14_ps(v)); }
  [[gnu::always_inline]] static V16 smaller(V16 a, V16 b) { return V16(_mm512_min_ps(a, b)); }
  [[gnu::always_inline]] static V16 larger(V16 a, V16 b) { return V16(_mm512_max_ps(a, b)); }
};

}  // namespace

Kernels make_kernels_avx512(const ModelOptions& options, const Layout& layout) {
  return make_kernels_for<Avx512>(options, layout);
}

}  // namespace motley::wide
