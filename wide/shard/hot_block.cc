#include "wide/shard/hot_block.h"

#include <numeric>

namespace motley::wide {

HotBlock::HotBlock(const Layout& all, std::uint64_t hot, const SlotRule& rule)
    : rule_(rule), layout_(all), numbers_(hot) {
  layout_.slots = hot;
  state_.assign(layout_.size(), 0.0f);
  gradients_.resize(layout_.shared + hot * (floats_sent(layout_) + 1));
  sums_.resize(hot * (layout_.width + 1));
  std::iota(numbers_.begin(), numbers_.end(), 0u);
}

void HotBlock::clear_gradients() { std::fill(gradients_.begin(), gradients_.end(), 0.0f); }

void HotBlock::add(std::uint64_t slot, const float* gradient, std::uint32_t entries) {
  float* const to = gradients_.data() + layout_.shared;
  const std::size_t n = floats_sent(layout_);
  for (std::size_t d = 0; d < n; ++d) to[slot * n + d] += gradient[d];
  to[layout_.slots * n + slot] += static_cast<float>(entries);
}

void HotBlock::apply() {
  before_ = state_;
  const float* const of_slots = gradients_.data() + layout_.shared;
  const std::size_t sent = floats_sent(layout_), n = layout_.width + 1;
  for (std::size_t slot = 0; slot < layout_.slots; ++slot) {
    std::copy_n(of_slots + slot * sent, sent - 1, sums_.data() + slot * n);
    sums_[slot * n + n - 1] = of_slots[slot * sent + sent - 1];
  }
  rule_.apply(layout_,
              {.slots = numbers_.data(),
               .sums = sums_.data(),
               .entries = of_slots + layout_.slots * sent,
               .n = layout_.slots},
              state_.data(), state_.data());
  Job job = rule_.job;
  job.layout = layout_;
  rule_.kernels.apply_shared(job, gradients_.data(),
                             SlotRule::tables(layout_, state_.data(), state_.data()));
}

void HotBlock::undo() {
  if (!before_.empty()) std::swap(state_, before_);
  before_.clear();
}

}  // namespace motley::wide
