// wide/kernel/model_traits.h: what loops.h asks of a model M beside its functions.
#pragma once

#include <cstddef>

#include "wide/ffm.h"
#include "wide/kernel/ffm_row.h"
#include "wide/kernel/kernels.h"
#include "wide/linear.h"

namespace motley::wide {

template <class M>
inline constexpr bool kLooksAtFields = requires(M m) {
  m.fields;
};
template <class M>
inline constexpr bool kSharesWeights = requires(M m) {
  m.shared;
};

template <class M>
inline constexpr bool kOnlyLinear = false;
template <class P>
inline constexpr bool kOnlyLinear<NoFactors<P>> = true;

// Quicker ways than a model's own functions, for rows that fit: here none.
template <class A, class O, class M>
struct QuickFactors {
  explicit QuickFactors(std::size_t /*width*/) {}
  static bool fits(const Job& /*job*/, std::size_t /*n*/) { return false; }
  template <class At>
  float gather(std::size_t /*n*/, const float* /*values*/, bool /*same*/, At /*at*/) {
    return 0;
  }
  void scatter(float /*slope*/, const Rates& /*rates*/) {}
};

template <class A, class O, class P, class B>
struct QuickFactors<A, O, FieldAwareMachine<P, B, 1>> : FfmRow<A, O, B::kLanes> {
  using FfmRow<A, O, B::kLanes>::FfmRow;
  static bool fits(const Job& job, std::size_t n) {
    return job.complete && n <= FfmRow<A, O, B::kLanes>::kMost;
  }
};

}  // namespace motley::wide
