// Compiled for AVX-512, and called only where the processor has it.
#include "wide/kernel/loops_for.h"
#include "wide/kernel/x86.h"

namespace motley::wide {
namespace {

struct Avx512 : UpTo8Lanes {
  static constexpr int kLanes = 16;
  using V1 = Vector<1>;
  using V4 = Vector<4>;
  using V8 = Vector<8>;
  using V16 = Vector<16>;
  using UpTo8Lanes::larger;
  using UpTo8Lanes::refined;
  using UpTo8Lanes::root;
  using UpTo8Lanes::smaller;
  [[gnu::always_inline]] static V16 root(V16 v) { return V16(_mm512_sqrt_ps(v)); }
  [[gnu::always_inline]] static __m512 refined(__m512 about, __m512 v) {
    const __m512 off = _mm512_fnmadd_ps(_mm512_mul_ps(v, about), about, _mm512_set1_ps(1));
    return _mm512_fmadd_ps(_mm512_mul_ps(about, _mm512_set1_ps(0.5f)), off, about);
  }
  // One step from 14 bits.
  [[gnu::always_inline]] static V1 inverse_root(V1 v) {
    return narrow<V1>(refined(_mm_rsqrt14_ss(low(v), low(v)), low(v)));
  }
  [[gnu::always_inline]] static V4 inverse_root(V4 v) { return V4(refined(_mm_rsqrt14_ps(v), v)); }
  [[gnu::always_inline]] static V8 inverse_root(V8 v) {
    return V8(refined(_mm256_rsqrt14_ps(v), v));
  }
  [[gnu::always_inline]] static V16 inverse_root(V16 v) {
    return V16(refined(_mm512_rsqrt14_ps(v), v));
  }
  [[gnu::always_inline]] static V16 smaller(V16 a, V16 b) { return V16(_mm512_min_ps(a, b)); }
  [[gnu::always_inline]] static V16 larger(V16 a, V16 b) { return V16(_mm512_max_ps(a, b)); }
};

}  // namespace

Kernels make_kernels_avx512(const ModelOptions& options, const Layout& layout) {
  return make_kernels_for<Avx512>(options, layout);
}

}  // namespace motley::wide
