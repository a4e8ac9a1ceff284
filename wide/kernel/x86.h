// wide/kernel/x86.h: what pack.h asks of an A, for the vectors of AVX2; AVX-512 builds on it.
#pragma once

#include <immintrin.h>

#include "wide/kernel/pack.h"

namespace motley::wide {

// Vectors of up to 8 lanes. Inlined: see pack.h.
struct UpTo8Lanes {
  using V1 = Vector<1>;
  using V2 = Vector<2>;
  using V4 = Vector<4>;
  using V8 = Vector<8>;

  template <class V>
  [[gnu::always_inline]] static __m128 low(V v) {
    __m128 wide = _mm_setzero_ps();
    std::memcpy(&wide, &v, sizeof v);
    return wide;
  }
  template <class V>
  [[gnu::always_inline]] static V narrow(__m128 wide) {
    V v;
    std::memcpy(&v, &wide, sizeof v);
    return v;
  }

  // Twice as many digits of 1 / root(v) as `about` has, by Newton's rule: with two steps from the
  // 11 bits of rsqrt all of a float, in less time than a root and a division take.
  [[gnu::always_inline]] static __m128 refined(__m128 about, __m128 v) {
    const __m128 off = _mm_fnmadd_ps(_mm_mul_ps(v, about), about, _mm_set1_ps(1));
    return _mm_fmadd_ps(_mm_mul_ps(about, _mm_set1_ps(0.5f)), off, about);
  }
  [[gnu::always_inline]] static __m256 refined(__m256 about, __m256 v) {
    const __m256 off = _mm256_fnmadd_ps(_mm256_mul_ps(v, about), about, _mm256_set1_ps(1));
    return _mm256_fmadd_ps(_mm256_mul_ps(about, _mm256_set1_ps(0.5f)), off, about);
  }

  [[gnu::always_inline]] static V1 root(V1 v) { return narrow<V1>(_mm_sqrt_ss(low(v))); }
  [[gnu::always_inline]] static V1 inverse_root(V1 v) {
    return narrow<V1>(refined(refined(_mm_rsqrt_ss(low(v)), low(v)), low(v)));
  }
  [[gnu::always_inline]] static V1 smaller(V1 a, V1 b) {
    return narrow<V1>(_mm_min_ss(low(a), low(b)));
  }
  [[gnu::always_inline]] static V1 larger(V1 a, V1 b) {
    return narrow<V1>(_mm_max_ss(low(a), low(b)));
  }
  [[gnu::always_inline]] static V4 root(V4 v) { return V4(_mm_sqrt_ps(v)); }
  [[gnu::always_inline]] static V4 inverse_root(V4 v) {
    return V4(refined(refined(_mm_rsqrt_ps(v), v), v));
  }
  [[gnu::always_inline]] static V4 smaller(V4 a, V4 b) { return V4(_mm_min_ps(a, b)); }
  [[gnu::always_inline]] static V4 larger(V4 a, V4 b) { return V4(_mm_max_ps(a, b)); }
  [[gnu::always_inline]] static V8 root(V8 v) { return V8(_mm256_sqrt_ps(v)); }
  [[gnu::always_inline]] static V8 inverse_root(V8 v) {
    return V8(refined(refined(_mm256_rsqrt_ps(v), v), v));
  }
  [[gnu::always_inline]] static V8 smaller(V8 a, V8 b) { return V8(_mm256_min_ps(a, b)); }
  [[gnu::always_inline]] static V8 larger(V8 a, V8 b) { return V8(_mm256_max_ps(a, b)); }
};

}  // namespace motley::wide
