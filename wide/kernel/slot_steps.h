// wide/kernel/slot_steps.h: where a slot's weights are, and how they step by a gradient, for an A
// (pack.h), a model M and an optimizer O.
#pragma once

#include "wide/kernel/kernels.h"
#include "wide/kernel/model_traits.h"
#include "wide/kernel/pack.h"

namespace motley::wide {

template <class A, class M, class O>
struct SlotSteps {
  using One = Pack<A, 1>;
  static constexpr int kPlanes = O::kPlanes;
  static constexpr std::size_t kLinearStride = kPlanes == 3 ? 4 : kPlanes;

  // Without a branch: which slots are hot is not to be predicted.
  [[gnu::always_inline]] static float* pick(bool first, float* one, float* other) {
    const auto a = reinterpret_cast<std::uintptr_t>(one);
    const auto b = reinterpret_cast<std::uintptr_t>(other);
    return reinterpret_cast<float*>(b + ((a - b) & (std::uintptr_t{0} - first)));
  }
  [[gnu::always_inline]] static float* linear_of(const Tables& t, std::uint32_t slot) {
    return pick(slot < t.hot, t.hot_linear, t.linear) + slot * kLinearStride;
  }
  [[gnu::always_inline]] static float* factors_of(const Tables& t, const M& m, std::uint32_t slot) {
    return pick(slot < t.hot, t.hot_factors, t.factors) + slot * (m.width() * kPlanes);
  }

  static M model_of(const Job& job, const Tables& t) {
    M m;
    if constexpr (requires { m.packs; }) m.packs = static_cast<int>(job.layout.block) / M::kLanes;
    if constexpr (kLooksAtFields<M>) {
      m.fields = static_cast<int>(job.layout.fields);
    }
    if constexpr (kSharesWeights<M>) m.factors = static_cast<int>(job.layout.block);
    if constexpr (requires { m.complete; }) {
      m.block = static_cast<int>(job.layout.block);
      m.row = static_cast<int>(job.layout.width);
      m.complete = job.complete;
    }
    if constexpr (kSharesWeights<M>) {
      if (t.shared != nullptr) m.shared = t.shared + Layout::kPairs;  // null: only sizes are asked
    }
    return m;
  }

  // The numbers of one P of weights, plane after plane with `stride` between; stepped and put back.
  template <class P>
  [[gnu::always_inline]] static void step(float* at, std::size_t stride, P gradient,
                                          const Rates& rates) {
    P s[kPlanes];
    for (int p = 0; p < kPlanes; ++p) s[p] = P::load(at + p * stride);
    O::step(s, gradient, rates);
    for (int p = 0; p < kPlanes; ++p) s[p].store(at + p * stride);
  }

  static void step_shared(const Job& job, const Tables& t, float bias, const Rates& rates) {
    step(t.shared + Layout::kBias, job.layout.shared, One(bias), rates);
    t.shared[Layout::kUpdates] += 1;
  }

  struct Stepped {
    Rates linear, factors, shared;
    Stepped(const Job& job, const Tables& t)
        : linear(job.linear), factors(job.factors), shared(job.shared) {
      if constexpr (requires { O::kDecay1; }) {
        const float now = t.shared[Layout::kUpdates] + 1;
        linear = rates_of_step(Optimizer::kAdam, linear, now);
        factors = rates_of_step(Optimizer::kAdam, factors, now);
        shared = rates_of_step(Optimizer::kAdam, shared, now);
      }
    }
  };

  [[gnu::always_inline]] static Rates for_entries(Rates r, float entries) {
    if constexpr (O::kPerEntry) {
      r.l1 *= entries;
      r.l2 *= entries;
    }
    return r;
  }

  // Factors for fields that no sample of the slot had stay as they are.
  static void step_blocks(float* v, std::size_t width, const float* gradient, const Rates& rates) {
    for (std::size_t d = 0; d < width; d += M::kBlockLanes) {
      const auto g = Pack<A, M::kBlockLanes>::load(gradient + d);
      if (total(g * g) > 0) step(v + d, width, g, rates);
    }
  }

  // A slot whose edges, `entries` of them, have these gradients as their sum.
  [[gnu::always_inline]] static void step_slot(const M& m, const Tables& t, std::uint32_t slot,
                                               float linear, const float* gradient, float entries,
                                               const Stepped& rates) {
    float* const v = factors_of(t, m, slot);
    const std::size_t width = m.width();
    step(linear_of(t, slot), 1, One(linear), for_entries(rates.linear, entries));
    const Rates factors = for_entries(rates.factors, entries);
    if constexpr (requires { m.complete; }) {
      if (!m.complete) return step_blocks(v, width, gradient, factors);
    }
    for (std::size_t d = 0; d < width; d += M::kLanes) {
      using P = Pack<A, M::kLanes>;
      step(v + d, width, P::load(gradient + d), factors);
    }
  }

  static void apply(const Job& job, const SlotGradients& gradients, const Tables& t) {
    const M m = model_of(job, t);
    const Stepped rates(job, t);
    const std::size_t width = m.width();
    for (std::size_t i = 0; i < gradients.n; ++i) {
      const float* const g = gradients.sums + i * (width + 1);
      if (gradients.entries[i] > 0)
        step_slot(m, t, gradients.slots[i], g[width], g, gradients.entries[i], rates);
    }
  }

  static void apply_shared(const Job& job, const float* gradient, const Tables& t) {
    const Stepped rates(job, t);
    for (std::size_t i = Layout::kPairs; i < Layout::kPairs + job.layout.pairs; ++i) {
      if (gradient[i] == 0) continue;
      step(t.shared + i, job.layout.shared, One(gradient[i]), rates.shared);
    }
    step_shared(job, t, gradient[Layout::kBias], rates.shared);
  }
};

}  // namespace motley::wide
