// wide/linear.h: the linear part, which every model has; alone it is logistic regression, or with a
// hinge loss a linear SVM. What model.h says of the three functions holds here.
//
//   score = sum_i w_i x_i
#pragma once

#include <cstddef>

namespace motley::wide {

// The three functions of the linear weights.
template <class P>
struct Linear {
  using Scalar = typename P::Scalar;
  using Sum = P;

  static constexpr void gather(Sum& sum, P weight, P value) { sum = sum + weight * value; }
  static constexpr Scalar score(const Sum& sum) { return total(sum); }
  static constexpr P scatter(P value, P slope) { return slope * value; }
};

// A model without factors: nothing beside the linear part.
template <class P>
struct NoFactors {
  using Scalar = typename P::Scalar;
  struct Sum {};
  static constexpr int kLanes = P::kLanes;

  constexpr std::size_t width() const { return 0; }
  constexpr std::size_t scratch() const { return 0; }
  constexpr void clear(Sum& /*sum*/, Scalar* /*scratch*/) const {}
  constexpr void gather(Sum& /*sum*/, const Scalar* /*v*/, int /*field*/, Scalar /*x*/) const {}
  constexpr Scalar score(const Sum& /*sum*/) const { return 0; }
  template <class Emit>
  constexpr void scatter(const Sum& /*sum*/, const Scalar* /*v*/, int /*field*/, Scalar /*x*/,
                         Scalar /*slope*/, Emit /*emit*/) const {}
};

}  // namespace motley::wide
