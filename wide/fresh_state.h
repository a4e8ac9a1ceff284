// wide/fresh_state.h: what a fresh model's state is (Layout), slot by slot, so that parts of it can
// be made on machines that do not hold the whole.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "wide/model.h"

namespace motley::wide {

class FreshState {
 public:
  FreshState(const ModelOptions& options, const Layout& layout);

  // Of what all samples share: [Layout::shared] times planes.
  void shared(float* to) const;
  // Of slots first, first + stride, …, to places 0, 1, … of `state`, which is laid out by `part`:
  // the layout of as many slots.
  void slots(std::uint64_t first, std::uint64_t stride, const Layout& part, float* state) const;

 private:
  ModelOptions options_;
  Layout layout_;
  std::vector<bool> used_;   // [width]: whether a factor as stored is one
  std::uint64_t drawn_ = 0;  // numbers that a slot's factors take
};

}  // namespace motley::wide
