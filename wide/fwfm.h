// wide/fwfm.h: field-weighted factorization machine: an FM whose pairs are weighted by their two
// fields. What model.h says of the three functions holds here.
//
//   score = linear part + sum_{i<j} <v_i, v_j> x_i x_j r[f_i][f_j]      f_i: the field of feature i
//
// J. Pan et al., "Field-weighted Factorization Machines for Click-Through Rate Prediction in
// Display Advertising", WWW 2018. The weights r belong to no feature: all samples share them.
#pragma once

#include <cstddef>

namespace motley::wide {

template <class P>
struct FieldWeightedMachine {
  using Scalar = typename P::Scalar;
  static constexpr int kLanes = P::kLanes;
  struct Sum {
    Scalar* sums;     // [fields][k]: A_f, the sum of v_i x_i over the features of field f
    Scalar* mixed;    // [fields][k]: sum over g of r[f][g] A_g
    Scalar* squares;  // [fields]: the sum of |v_i x_i|^2 over the features of field f
  };

  int fields = 0;
  int factors = 0;                 // k, a multiple of P::kLanes
  const Scalar* shared = nullptr;  // r: [fields][fields], of which f <= g is used

  constexpr std::size_t width() const { return static_cast<std::size_t>(factors); }
  constexpr std::size_t size() const { return static_cast<std::size_t>(fields * factors); }
  constexpr std::size_t scratch() const { return 2 * size() + static_cast<std::size_t>(fields); }
  constexpr Scalar r(int f, int g) const { return shared[f < g ? f * fields + g : g * fields + f]; }

  constexpr void clear(Sum& sum, Scalar* scratch) const {
    sum = {scratch, scratch + size(), scratch + 2 * size()};
    for (std::size_t i = 0; i < size(); ++i) sum.sums[i] = 0;
    for (int f = 0; f < fields; ++f) sum.squares[f] = 0;
  }
  constexpr void gather(Sum& sum, const Scalar* v, int field, Scalar x) const {
    Scalar* const to = sum.sums + field * factors;
    P squares(0);
    for (int d = 0; d < factors; d += P::kLanes) {
      const P t = P::load(v + d) * P(x);
      (P::load(to + d) + t).store(to + d);
      squares = squares + t * t;
    }
    sum.squares[field] += total(squares);
  }
  constexpr Scalar score(const Sum& sum) const {
    P pairs(0);
    Scalar self = 0;
    for (int f = 0; f < fields; ++f) {
      for (int d = 0; d < factors; d += P::kLanes) {
        P mixed(0);
        for (int g = 0; g < fields; ++g) {
          mixed = mixed + P(r(f, g)) * P::load(sum.sums + g * factors + d);
        }
        mixed.store(sum.mixed + f * factors + d);
        pairs = pairs + mixed * P::load(sum.sums + f * factors + d);
      }
      self += r(f, f) * sum.squares[f];
    }
    return (total(pairs) - self) / 2;
  }
  // emit(d, gradient) for the weights v[d], v[d + 1], … of one P at a time.
  template <class Emit>
  constexpr void scatter(const Sum& sum, const Scalar* v, int field, Scalar x, Scalar slope,
                         Emit emit) const {
    for (int d = 0; d < factors; d += P::kLanes) {
      const P others =
          P::load(sum.mixed + field * factors + d) - P(r(field, field) * x) * P::load(v + d);
      emit(d, P(slope * x) * others);
    }
  }
  // emit(i, gradient) for each r whose fields the sample has, i its place in `shared`.
  template <class Emit>
  constexpr void scatter_shared(const Sum& sum, Scalar slope, Emit emit) const {
    for (int f = 0; f < fields; ++f) {
      if (sum.squares[f] == 0) continue;
      for (int g = f; g < fields; ++g) {
        if (sum.squares[g] == 0) continue;
        P pairs(0);
        for (int d = 0; d < factors; d += P::kLanes) {
          pairs = pairs + P::load(sum.sums + f * factors + d) * P::load(sum.sums + g * factors + d);
        }
        const Scalar t = f == g ? (total(pairs) - sum.squares[f]) / 2 : total(pairs);
        emit(f * fields + g, slope * t);
      }
    }
  }
};

}  // namespace motley::wide
