// wide/kernel/loops_for.h: the loops (loops.h) that fit a model and an optimizer, for an A
// (pack.h).
#pragma once

#include "wide/ffm.h"
#include "wide/fm.h"
#include "wide/fwfm.h"
#include "wide/kernel/loops.h"

namespace motley::wide {

template <class A, class M>
Kernels kernels_for(const ModelOptions& options, const Layout& layout) {
  switch (options.optimizer) {
    case Optimizer::kSgd:
      return Loops<A, M, Sgd>::kernels(layout);
    case Optimizer::kAdaGrad:
      return Loops<A, M, AdaGrad>::kernels(layout);
    case Optimizer::kFtrl:
      return Loops<A, M, Ftrl>::kernels(layout);
    case Optimizer::kGradientSum:
      return Loops<A, M, GradientSum>::kernels(layout);
    default:
      return Loops<A, M, Adam>::kernels(layout);
  }
}

// FM with k as stored of one or two vectors, or of any number.
template <class A, int n>
Kernels kernels_of_fm(const ModelOptions& options, const Layout& layout) {
  using P = Pack<A, n>;
  if (layout.block == n) return kernels_for<A, FactorizationMachine<P, 1>>(options, layout);
  if constexpr (n == A::kLanes) {
    if (layout.block == 2 * n) return kernels_for<A, FactorizationMachine<P, 2>>(options, layout);
    return kernels_for<A, FactorizationMachine<P>>(options, layout);
  }
  return {};
}

template <class A>
Kernels kernels_of_fm(const ModelOptions& options, const Layout& layout) {
  if constexpr (A::kLanes > 8) {
    if (layout.block == 8) return kernels_of_fm<A, 8>(options, layout);
  }
  if constexpr (A::kLanes > 4) {
    if (layout.block == 4) return kernels_of_fm<A, 4>(options, layout);
  }
  return kernels_of_fm<A, A::kLanes>(options, layout);
}

template <class A>
Kernels make_kernels_for(const ModelOptions& options, const Layout& layout) {
  using Four = Pack<A, 4>;
  using Widest = Pack<A, A::kLanes>;
  switch (options.kind) {
    case ModelKind::kFm:
      return kernels_of_fm<A>(options, layout);
    case ModelKind::kFfm:
      if (layout.block == 4) {
        return kernels_for<A, FieldAwareMachine<Widest, Four, 1>>(options, layout);
      }
      if constexpr (A::kLanes >= 8) {
        if (layout.block == 8) {
          return kernels_for<A, FieldAwareMachine<Widest, Pack<A, 8>, 1>>(options, layout);
        }
      }
      return kernels_for < A,
             FieldAwareMachine<Widest, Pack<A, A::kLanes<8 ? 4 : 8>>>(options, layout);
    case ModelKind::kFwfm:
      return kernels_for<A, FieldWeightedMachine<Four>>(options, layout);
    default:
      return kernels_for<A, NoFactors<Pack<A, 1>>>(options, layout);
  }
}

}  // namespace motley::wide
