// wide/shard/hot_block.h: the most frequent slots, and what all samples share, of which every
// worker has its own: one buffer of gradients, which workers add up, and the state that they step.
#pragma once

#include <span>
#include <vector>

#include "wide/fresh_state.h"
#include "wide/huge_pages.h"
#include "wide/shard/slot_rule.h"

namespace motley::wide {

class HotBlock {
 public:
  HotBlock(const Layout& all, std::uint64_t hot, const SlotRule& rule);

  std::uint64_t slots() const noexcept { return layout_.slots; }
  const Layout& layout() const noexcept { return layout_; }
  std::span<float> state() noexcept { return state_; }
  std::span<const float> state() const noexcept { return state_; }
  float* shared() noexcept { return state_.data(); }
  void read(std::uint64_t slot, float* to) const { read_weights(layout_, state_.data(), slot, to); }

  // Zeros, to which a batch adds.
  void clear_gradients();
  void add(std::uint64_t slot, const float* gradient, std::uint32_t entries);
  std::span<float> shared_gradient() { return std::span(gradients_).first(layout_.shared); }
  // All of them, and how many edges they are of: what workers add up.
  std::span<float> gradients() noexcept { return gradients_; }

  void apply();
  // The state is as before the last apply().
  void undo();

 private:
  const SlotRule& rule_;
  Layout layout_;
  Floats state_, before_;
  // [shared], [slots][floats_sent()], entries [slots]
  std::vector<float> gradients_;
  std::vector<float> sums_;             // as SlotGradients has them
  std::vector<std::uint32_t> numbers_;  // 0, 1, …
};

}  // namespace motley::wide
