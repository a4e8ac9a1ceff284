// wide/shard/slot_rule.h: how a worker updates the slots that it keeps by gradients that it was
// sent. A slot's weights on their way, and their gradients, are [floats_sent()]: factors, without
// what fills them up behind the last field, then the linear one.
#pragma once

#include <algorithm>

#include "wide/kernel/flow.h"
#include "wide/kernel/kernels.h"
#include "wide/model.h"

namespace motley::wide {

struct SlotRule {
  Kernels kernels;
  Job job;  // but for the layout

  static SlotRule of(const ModelOptions& options, const Layout& layout, const Samples& samples,
                     const UpdateOptions& rates) {
    Job job = job_of(options, layout, samples, rates);
    return {make_kernels(options, layout, widest_lanes()), job};
  }
  // `layout` is that of `state`, `shared` what all samples share.
  void apply(const Layout& layout, const SlotGradients& gradients, float* state,
             float* shared) const {
    Job of_layout = job;
    of_layout.layout = layout;
    kernels.apply(of_layout, gradients, tables(layout, state, shared));
  }
  static Tables tables(const Layout& layout, float* state, float* shared) {
    return {.shared = shared,
            .linear = state + layout.linear_begin(),
            .factors = state + layout.factors_begin()};
  }
};

inline std::size_t factors_sent(const Layout& layout) noexcept {
  const std::size_t of_fields = layout.fields * layout.block;
  return layout.width > layout.block ? of_fields : layout.width;
}
inline std::size_t floats_sent(const Layout& layout) noexcept { return factors_sent(layout) + 1; }

inline void read_weights(const Layout& layout, const float* state, std::uint64_t place, float* to) {
  const std::size_t factors = factors_sent(layout);
  std::copy_n(state + layout.factors_of(place), factors, to);
  to[factors] = state[layout.linear(place)];
}

// All of a slot's state, to and from where it stands alone: [slot_floats()].
inline std::size_t slot_floats(const Layout& layout) noexcept {
  return layout.linear_stride() + layout.factors_stride();
}
inline void take_slot(const Layout& layout, const float* state, std::uint64_t place, float* to) {
  std::copy_n(state + layout.linear(place), layout.linear_stride(), to);
  std::copy_n(state + layout.factors_of(place), layout.factors_stride(),
              to + layout.linear_stride());
}
inline void put_slot(const Layout& layout, const float* from, std::uint64_t place, float* state) {
  std::copy_n(from, layout.linear_stride(), state + layout.linear(place));
  std::copy_n(from + layout.linear_stride(), layout.factors_stride(),
              state + layout.factors_of(place));
}

// What the rule kept of slots before it changed them.
class SlotsBefore {
 public:
  void clear() noexcept { places_.clear(); }
  void keep(const Layout& layout, const float* state, std::uint32_t place) {
    places_.push_back(place);
    const std::size_t n = slot_floats(layout);
    floats_.resize(std::max(floats_.size(), places_.size() * n));
    take_slot(layout, state, place, floats_.data() + (places_.size() - 1) * n);
  }
  void restore(const Layout& layout, float* state) {
    const std::size_t n = slot_floats(layout);
    for (std::size_t i = 0; i < places_.size(); ++i)
      put_slot(layout, floats_.data() + i * n, places_[i], state);
    clear();
  }

 private:
  std::vector<std::uint32_t> places_;
  std::vector<float> floats_;
};

}  // namespace motley::wide
