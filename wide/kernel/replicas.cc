#include "wide/kernel/replicas.h"

#include <algorithm>

namespace motley::wide {
namespace {

// Measured on Criteo's rows with two threads: about what a core's own cache holds, and no more
// slots than are merged quickly.
constexpr std::size_t kHotBytes = 1'300'000;
constexpr std::size_t kMostHot = 4096;
constexpr std::size_t kStripe = 32;  // slots under one lock

std::size_t hot_slots(const Layout& layout) {
  const std::size_t bytes = sizeof(float) * (layout.factors_stride() + layout.linear_stride());
  return std::min({layout.slots, kMostHot, std::max<std::size_t>(kHotBytes / bytes, 64)});
}

std::size_t round_to_line(std::size_t floats) { return (floats + 15) / 16 * 16; }

}  // namespace

Replicas::Replicas(const Kernels& kernels, const Layout& layout, int threads)
    : kernels_(kernels),
      layout_(layout),
      hot_(hot_slots(layout)),
      linear_begin_(round_to_line(layout.linear_begin())),
      factors_begin_(linear_begin_ + round_to_line(hot_ * layout.linear_stride())),
      copies_(static_cast<std::size_t>(threads)),
      stripes_(1 + (hot_ + kStripe - 1) / kStripe) {
  stripes_[0].pieces = {{0, 0, layout.linear_begin()}};
  for (std::size_t s = 1; s < stripes_.size(); ++s) {
    const std::size_t first = (s - 1) * kStripe;
    const std::size_t n = std::min(kStripe, hot_ - first);
    stripes_[s].pieces = {
        {layout.linear(first), linear_begin_ + first * layout.linear_stride(),
         n * layout.linear_stride()},
        {layout.factors_of(first), factors_begin_ + first * layout.factors_stride(),
         n * layout.factors_stride()}};
  }
  for (Copy& copy : copies_) {
    copy.own.resize(factors_begin_ + hot_ * layout.factors_stride());
    copy.base.resize(copy.own.size());
  }
}

// The larger a slot, the dearer a merge. Factors that all fields share drift apart soonest: an FM's
// test loss was 1 % worse with 2000 rows.
std::size_t Replicas::merge_rows() const noexcept {
  // All that are apart are added up: an FFM's first steps, which are long, do not bear more of
  // them.
  if (layout_.width > 64) return copies_.size() <= 2 ? 4000 : 2048 / copies_.size();
  return layout_.width > 0 ? 500 : 2000;
}

// The sum of what threads learnt apart is too far a step where they learnt much; the mean is not.
// With SGD they learn much: its steps do not become smaller, and a bias moves with every row. Nor
// may Adam's moving averages be added up.
float Replicas::scale(Optimizer optimizer, std::size_t rows) const noexcept {
  const float mean = 1.0f / static_cast<float>(copies_.size());
  if (optimizer == Optimizer::kSgd || optimizer == Optimizer::kAdam) return mean;
  return std::clamp(static_cast<float>(merge_rows()) / static_cast<float>(rows), mean, 1.0f);
}

// Threads begin at different stripes, so that they seldom wait for each other.
template <class Body>
void Replicas::each_piece(int thread, Body body) {
  const std::size_t n = stripes_.size();
  const std::size_t first = static_cast<std::size_t>(thread) * n / copies_.size();
  for (std::size_t i = 0; i < n; ++i) {
    Stripe& stripe = stripes_[(first + i) % n];
    const std::lock_guard lock(stripe.mutex);
    for (const Piece& piece : stripe.pieces) body(piece);
  }
}

Tables Replicas::take(int thread, float* state) {
  Copy& copy = copies_[static_cast<std::size_t>(thread)];
  each_piece(thread, [&](const Piece& piece) {
    std::copy_n(state + piece.state, piece.n, copy.own.data() + piece.copy);
    std::copy_n(state + piece.state, piece.n, copy.base.data() + piece.copy);
  });
  return {.shared = copy.own.data(),
          .linear = state + layout_.linear_begin(),
          .factors = state + layout_.factors_begin(),
          .hot = static_cast<std::uint32_t>(hot_),
          .hot_linear = copy.own.data() + linear_begin_,
          .hot_factors = copy.own.data() + factors_begin_};
}

void Replicas::merge(int thread, float* state, const Job& job, float scale) {
  Copy& copy = copies_[static_cast<std::size_t>(thread)];
  each_piece(thread, [&](const Piece& piece) {
    float* const all = state + piece.state;
    float* const own = copy.own.data() + piece.copy;
    float* const base = copy.base.data() + piece.copy;
    kernels_.merge(all, own, base, piece.n, scale);
    if (kernels_.follow == nullptr) return;
    follow(piece, state, job);
    std::copy_n(all, piece.n, own);
    std::copy_n(all, piece.n, base);
  });
}

void Replicas::follow(const Piece& piece, float* state, const Job& job) const {
  const Layout& l = layout_;
  float* const at = state + piece.state;
  if (piece.state == 0) {
    kernels_.follow({at + Layout::kBias, 1, 0, 1, l.shared}, job.shared);
    kernels_.follow({at + Layout::kPairs, 1, 0, l.pairs, l.shared}, job.shared);
  } else if (piece.state < l.factors_begin()) {
    const std::size_t stride = l.linear_stride();
    kernels_.follow({at, piece.n / stride, stride, 1, 1}, job.linear);
  } else if (l.width > 0) {
    const std::size_t stride = l.factors_stride();
    kernels_.follow({at, piece.n / stride, stride, l.width, l.width}, job.factors);
  }
}

}  // namespace motley::wide
