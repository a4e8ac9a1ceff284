#include "wide/fresh_state.h"

#include <algorithm>
#include <cmath>

namespace motley::wide {
namespace {

// splitmix64, so that every standard library gives the same. G. Steele, D. Lea, C. Flood, "Fast
// splittable pseudorandom number generators", OOPSLA 2014.
class Uniform {
 public:
  // The numbers behind the first `skipped`.
  Uniform(std::uint64_t seed, std::uint64_t skipped) : state_(seed + skipped * kStep) {}
  float next() {  // in [0, 1), of the upper 24 bits
    state_ += kStep;
    std::uint64_t x = state_;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return static_cast<float>((x ^ (x >> 31)) >> 40) * 0x1p-24f;
  }

 private:
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15u;
  std::uint64_t state_;
};

float accumulator_of(const ModelOptions& options) {
  return options.optimizer == Optimizer::kAdaGrad ? options.initial_accumulator : 0.0f;
}

}  // namespace

FreshState::FreshState(const ModelOptions& options, const Layout& layout)
    : options_(options), layout_(layout), used_(layout.width) {
  for (std::size_t d = 0; d < used_.size(); ++d) {
    used_[d] = layout.is_weight(layout.factors_begin() + d);
    drawn_ += used_[d] ? 1 : 0;
  }
}

void FreshState::shared(float* to) const {
  std::fill_n(to, layout_.shared * layout_.planes, 0.0f);
  if (layout_.planes == 2)
    std::fill_n(to + layout_.shared, layout_.shared, accumulator_of(options_));
  std::fill_n(to + Layout::kPairs, layout_.pairs, 1.0f);
}

void FreshState::slots(std::uint64_t first, std::uint64_t stride, const Layout& part,
                       float* state) const {
  const bool centred = options_.kind != ModelKind::kFfm;
  const float scale = options_.init_scale / std::sqrt(static_cast<float>(layout_.factors));
  for (std::uint64_t place = 0; place < part.slots; ++place) {
    std::fill_n(state + part.linear(place), part.linear_stride(), 0.0f);
    if (part.planes == 2) state[part.linear(place) + 1] = accumulator_of(options_);
    float* const row = state + part.factors_of(place);
    Uniform random(options_.seed, (first + place * stride) * drawn_);
    for (std::size_t d = 0; d < part.width; ++d) {
      row[d] = !used_[d] ? 0.0f : scale * (centred ? 2 * random.next() - 1 : random.next());
    }
    std::fill_n(row + part.width, part.width * (part.planes - 1),
                part.planes == 2 ? accumulator_of(options_) : 0.0f);
  }
}

}  // namespace motley::wide
