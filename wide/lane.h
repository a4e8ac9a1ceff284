// wide/lane.h: the numbers that models and optimizers compute with: one lane, on its own.
//
// The three functions of a model and the rule of an optimizer are written once, over a type P that
// holds P::kLanes neighbouring weights. Lane<float> is P for a thread of a GPU, Lane<double> is P
// for tests by central differences, and kernel/pack.h has P as vectors of a CPU. nvcc compiles
// constexpr functions for the device too (--expt-relaxed-constexpr).
#pragma once

#include <cmath>

namespace motley::wide {

template <class T>
struct Lane {
  using Scalar = T;
  static constexpr int kLanes = 1;

  Lane() = default;
  constexpr explicit Lane(T x) : value(x) {}
  static constexpr Lane load(const T* from) { return Lane(*from); }
  constexpr void store(T* to) const { *to = value; }

  friend constexpr Lane operator+(Lane a, Lane b) { return Lane(a.value + b.value); }
  friend constexpr Lane operator-(Lane a, Lane b) { return Lane(a.value - b.value); }
  friend constexpr Lane operator*(Lane a, Lane b) { return Lane(a.value * b.value); }
  friend constexpr Lane operator/(Lane a, Lane b) { return Lane(a.value / b.value); }
  friend constexpr Lane smaller(Lane a, Lane b) { return a.value < b.value ? a : b; }
  friend constexpr Lane larger(Lane a, Lane b) { return a.value > b.value ? a : b; }
  friend constexpr Lane root(Lane a) { return Lane(std::sqrt(a.value)); }
  friend constexpr Lane inverse_root(Lane a) { return Lane(1 / std::sqrt(a.value)); }
  friend constexpr T total(Lane a) { return a.value; }  // of all lanes

  T value;
};

}  // namespace motley::wide
