// wide/device/kernel/rules.cuh: the rules of optimizer.h on a state in device memory: stored, where
// nobody else updates the weight, or added by atomics, where others may at the same time.
#pragma once

#include "wide/device/kernel/quad.cuh"
#include "wide/device/kernels.h"
#include "wide/optimizer.h"

namespace motley::wide {

constexpr int kMostPlanes = 3;

template <class O, class P>
__device__ void step_by(P (&s)[kMostPlanes], P gradient, const Rates& rates, float entries) {
  P own[O::kPlanes];
  for (int p = 0; p < O::kPlanes; ++p) own[p] = s[p];
  O::step(own, gradient, of_entries<O>(rates, entries));
  for (int p = 0; p < O::kPlanes; ++p) s[p] = own[p];
}

// `entries` edges of the batch have the gradient as their sum.
template <class P>
__device__ void step(Optimizer optimizer, P (&s)[kMostPlanes], P gradient, const Rates& rates,
                     float entries) {
  if (optimizer == Optimizer::kAdaGrad) {
    step_by<AdaGrad>(s, gradient, rates, entries);
  } else if (optimizer == Optimizer::kFtrl) {
    step_by<Ftrl>(s, gradient, rates, entries);
  } else if (optimizer == Optimizer::kAdam) {
    step_by<Adam>(s, gradient, rates, entries);
  } else {
    step_by<Sgd>(s, gradient, rates, entries);
  }
}

// What is kept beside the weights at `at`, `stride` floats apart.
template <class P>
[[gnu::always_inline]] __device__ inline void load_others(P (&s)[kMostPlanes], const float* at,
                                                          std::uint32_t stride, int planes) {
  s[1] = planes > 1 ? P::load(at + stride) : P(0);
  s[2] = planes > 2 ? P::load(at + 2 * stride) : P(0);
}
template <class P>
__device__ void store(const P (&s)[kMostPlanes], float* at, std::uint32_t stride, int planes) {
  s[0].store(at);
  if (planes > 1) s[1].store(at + stride);
  if (planes > 2) s[2].store(at + 2 * stride);
}

// One atomic where the device has one for so many words (sm_90), else one a word. Returns what was
// there.
template <class T>
[[gnu::always_inline]] __device__ inline T add_words(T* at, T x) {
  if constexpr (requires { atomicAdd(at, x); }) {
    return atomicAdd(at, x);
  } else {
    float* const to = reinterpret_cast<float*>(at);
    T before;
    before.x = atomicAdd(to, x.x);
    before.y = atomicAdd(to + 1, x.y);
    if constexpr (requires { x.z; }) {
      before.z = atomicAdd(to + 2, x.z);
      before.w = atomicAdd(to + 3, x.w);
    }
    return before;
  }
}
[[gnu::always_inline]] __device__ inline Quad add(float* at, Quad x) {
  return Quad(add_words(reinterpret_cast<float4*>(at), x.v));
}
__device__ inline One add(float* at, One x) { return One(atomicAdd(at, x.value)); }

// Adds what the step changes. Of FTRL the weight follows from sums that others add to, too. Adam's
// are means: of two that step at once one is kept, as what both forget, added up, might be too
// much. Returns the weight that is there then. Inlined, so that the emulator, too, takes each of
// its uses in an unrolled loop for an instruction of its own.
template <class P>
[[gnu::always_inline]] __device__ inline P add_step(Optimizer optimizer, P (&s)[kMostPlanes],
                                                    float* at, std::uint32_t stride, P gradient,
                                                    const Rates& rates, float entries) {
  const P w = s[0], a = s[1], b = s[2];
  step(optimizer, s, gradient, rates, entries);
  if (optimizer == Optimizer::kFtrl) {
    const P z = add(at + stride, s[1] - a), n = add(at + 2 * stride, s[2] - b);
    P now[kMostPlanes] = {w, z + (s[1] - a), n + (s[2] - b)};
    Ftrl::follow(now, rates);
    now[0].store(at);
    return now[0];
  }
  const P now = add(at, s[0] - w) + (s[0] - w);
  if (optimizer == Optimizer::kAdaGrad) {
    add(at + stride, s[1] - a);
  } else if (optimizer == Optimizer::kAdam) {
    s[1].store(at + stride);
    s[2].store(at + 2 * stride);
  }
  return now;
}

// A linear weight, whose planes lie side by side and are loaded as one word.
__device__ inline std::uint32_t linear_stride(int planes) {
  return planes == 3 ? 4u : static_cast<std::uint32_t>(planes);
}
__device__ inline void load_linear(One (&s)[kMostPlanes], const float* at, int planes) {
  s[1] = s[2] = One(0);
  if (planes == 2) {
    const float2 both = *reinterpret_cast<const float2*>(at);
    s[0] = One(both.x);
    s[1] = One(both.y);
  } else if (planes == 3) {
    const float4 all = *reinterpret_cast<const float4*>(at);
    s[0] = One(all.x);
    s[1] = One(all.y);
    s[2] = One(all.z);
  } else {
    s[0] = One::load(at);
  }
}
__device__ inline void step_linear(Optimizer optimizer, One (&s)[kMostPlanes], float* at,
                                   float gradient, const Rates& rates, float entries) {
  step(optimizer, s, One(gradient), rates, entries);
  if (optimizer == Optimizer::kAdaGrad) {
    *reinterpret_cast<float2*>(at) = make_float2(s[0].value, s[1].value);
  } else if (optimizer != Optimizer::kSgd) {
    *reinterpret_cast<float4*>(at) = make_float4(s[0].value, s[1].value, s[2].value, 0);
  } else {
    s[0].store(at);
  }
}
__device__ inline void add_linear_step(Optimizer optimizer, One (&s)[kMostPlanes], float* at,
                                       float gradient, const Rates& rates, float entries) {
  if (optimizer != Optimizer::kAdaGrad) {
    add_step(optimizer, s, at, 1, One(gradient), rates, entries);
    return;
  }
  const float w = s[0].value, sum = s[1].value;
  step(optimizer, s, One(gradient), rates, entries);
  add_words(reinterpret_cast<float2*>(at), make_float2(s[0].value - w, s[1].value - sum));
}

}  // namespace motley::wide
