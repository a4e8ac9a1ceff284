// wide/fm.h: factorization machine of degree 2. What model.h says of the three functions holds
// here.
//
//   score = linear part + sum_{i<j} <v_i, v_j> x_i x_j
//
// The pairs cost k per feature, as sum_{i<j} <v_i, v_j> x_i x_j = (|S|^2 - sum_i |v_i x_i|^2) / 2
// with S = sum_i v_i x_i.  S. Rendle, "Factorization Machines", ICDM 2010, lemma 3.1.
#pragma once

#include <cstddef>

namespace motley::wide {

inline constexpr int kMaxFactors = 256;

// kPacks times P::kLanes factors known to the compiler, or, if kPacks = 0, `packs` times.
template <class P, int kPacks = 0>
struct FactorizationMachine {
  using Scalar = typename P::Scalar;
  static constexpr int kLanes = P::kLanes;
  static constexpr int kCapacity = kPacks > 0 ? kPacks : kMaxFactors / P::kLanes;
  struct Sum {
    P factors[kCapacity];  // S
    P squares[kCapacity];  // sum of (v_i x_i)^2, for each factor
  };

  int packs = kPacks;

  constexpr int size() const { return kPacks > 0 ? kPacks : packs; }
  constexpr std::size_t width() const { return static_cast<std::size_t>(size() * kLanes); }
  constexpr std::size_t scratch() const { return 0; }
  constexpr void clear(Sum& sum, Scalar* /*scratch*/) const {
    for (int p = 0; p < size(); ++p) sum.factors[p] = sum.squares[p] = P(0);
  }
  constexpr void gather(Sum& sum, const Scalar* v, int /*field*/, Scalar x) const {
    for (int p = 0; p < size(); ++p) {
      const P t = P::load(v + p * P::kLanes) * P(x);
      sum.factors[p] = sum.factors[p] + t;
      sum.squares[p] = sum.squares[p] + t * t;
    }
  }
  constexpr Scalar score(const Sum& sum) const {
    P pairs(0);
    for (int p = 0; p < size(); ++p) {
      pairs = pairs + sum.factors[p] * sum.factors[p] - sum.squares[p];
    }
    return total(pairs) / 2;
  }
  // emit(d, gradient) for the weights v[d], v[d + 1], … of one P at a time.
  template <class Emit>
  constexpr void scatter(const Sum& sum, const Scalar* v, int /*field*/, Scalar x, Scalar slope,
                         Emit emit) const {
    for (int p = 0; p < size(); ++p) {
      const int d = p * P::kLanes;
      emit(d, P(slope * x) * (sum.factors[p] - P::load(v + d) * P(x)));
    }
  }
};

}  // namespace motley::wide
