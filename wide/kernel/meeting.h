// wide/kernel/meeting.h: how copies of weights meet (replicas.h), for an A (pack.h) and an
// optimizer O.
#pragma once

#include "wide/kernel/kernels.h"
#include "wide/kernel/pack.h"
#include "wide/lane.h"

namespace motley::wide {

// Whether O keeps numbers of which the weight follows.
template <class O>
inline constexpr bool kFollows = requires(Lane<float> (&s)[O::kPlanes], const Rates& r) {
  O::follow(s, r);
};

template <class A, class O>
struct Meeting {
  static void merge(float* all, float* own, float* base, std::size_t n, float scale) {
    using P = Pack<A, A::kLanes>;
    std::size_t i = 0;
    for (; i + A::kLanes <= n; i += A::kLanes) {
      const P moved = P(scale) * (P::load(own + i) - P::load(base + i));
      const P sum = P::load(all + i) + moved;
      sum.store(all + i);
      sum.store(own + i);
      sum.store(base + i);
    }
    for (; i < n; ++i) all[i] = own[i] = base[i] = all[i] + scale * (own[i] - base[i]);
  }

  static void follow(const Weights& weights, const Rates& rates) requires kFollows<O> {
    for (std::size_t u = 0; u < weights.units; ++u) {
      float* const at = weights.first + u * weights.unit;
      std::size_t i = 0;
      for (; i + A::kLanes <= weights.n; i += A::kLanes) {
        follow_planes<Pack<A, A::kLanes>>(at + i, weights.plane, rates);
      }
      for (; i < weights.n; ++i) follow_planes<Pack<A, 1>>(at + i, weights.plane, rates);
    }
  }
  template <class P>
  [[gnu::always_inline]] static void follow_planes(float* at, std::size_t stride,
                                                   const Rates& rates) {
    P s[O::kPlanes];
    for (int p = 0; p < O::kPlanes; ++p) s[p] = P::load(at + p * stride);
    O::follow(s, rates);
    s[0].store(at);
  }
};

}  // namespace motley::wide
