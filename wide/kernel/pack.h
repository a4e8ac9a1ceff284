// wide/kernel/pack.h: neighbouring lanes of a CPU's vector, as models compute with them (lane.h).
//
// Vectors are the compiler's own (GCC, Clang). Each width of the processor is compiled in a file of
// its own, for processors that have it, under an A of its own: such a file must not emit functions
// that others share, so all here are inlined or belong to A alone. A has
//   kLanes                  of its widest vector
//   root, inverse_root      of Vector<n>, n up to kLanes; all digits of a float
//   smaller, larger         lane by lane
#pragma once

#include <cstring>
#include <utility>

namespace motley::wide {

template <int n>
struct VectorOf {
  using type [[gnu::vector_size(4 * n)]] = float;
};
template <int n>
using Vector = typename VectorOf<n>::type;

template <class A, int n>
struct Pack {
  using Scalar = float;
  static constexpr int kLanes = n;

  Pack() = default;
  [[gnu::always_inline]] explicit Pack(float x) : v(Vector<n>{} + x) {}
  [[gnu::always_inline]] explicit Pack(Vector<n> x) : v(x) {}
  [[gnu::always_inline]] static Pack load(const float* from) {
    Pack p;
    std::memcpy(&p.v, from, sizeof p.v);
    return p;
  }
  [[gnu::always_inline]] void store(float* to) const { std::memcpy(to, &v, sizeof v); }

  [[gnu::always_inline]] friend Pack operator+(Pack a, Pack b) { return Pack(a.v + b.v); }
  [[gnu::always_inline]] friend Pack operator-(Pack a, Pack b) { return Pack(a.v - b.v); }
  [[gnu::always_inline]] friend Pack operator*(Pack a, Pack b) { return Pack(a.v * b.v); }
  [[gnu::always_inline]] friend Pack operator/(Pack a, Pack b) { return Pack(a.v / b.v); }
  [[gnu::always_inline]] friend Pack smaller(Pack a, Pack b) { return Pack(A::smaller(a.v, b.v)); }
  [[gnu::always_inline]] friend Pack larger(Pack a, Pack b) { return Pack(A::larger(a.v, b.v)); }
  [[gnu::always_inline]] friend Pack root(Pack a) { return Pack(A::root(a.v)); }
  [[gnu::always_inline]] friend Pack inverse_root(Pack a) { return Pack(A::inverse_root(a.v)); }
  template <int... i>
  [[gnu::always_inline]] friend auto folded(Pack a, std::integer_sequence<int, i...>) {
    constexpr int half = sizeof...(i);
    return Pack<A, half>(Vector<half>(__builtin_shufflevector(a.v, a.v, i...) +
                                      __builtin_shufflevector(a.v, a.v, (half + i)...)));
  }
  // Halves are added to each other until one lane is left.
  [[gnu::always_inline]] friend float total(Pack a) {
    if constexpr (n == 1) {
      return a.v[0];
    } else {
      return total(folded(a, std::make_integer_sequence<int, n / 2>()));
    }
  }

  Vector<n> v;
};

// The lanes of four, one after the other.
template <class P, class A, int n>
[[gnu::always_inline]] inline P join(Pack<A, n> a, Pack<A, n> b, Pack<A, n> c, Pack<A, n> d) {
  static_assert(n == 4 && P::kLanes == 16);
  const Vector<8> low = __builtin_shufflevector(a.v, b.v, 0, 1, 2, 3, 4, 5, 6, 7);
  const Vector<8> high = __builtin_shufflevector(c.v, d.v, 0, 1, 2, 3, 4, 5, 6, 7);
  return P(Vector<16>(
      __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)));
}

}  // namespace motley::wide
