// moe/expert/slot.h: where an expert's matrices lie in its slot.
#pragma once

#include <cstddef>

#include "moe/expert_compute.h"

namespace motley::moe::expert {

// Of parameters, or of their gradients. w3, b3 are null in plain experts.
template <class Number>
struct Slot {
  Slot(Number* slot, const ExpertShape& shape) {
    const auto d = static_cast<std::size_t>(shape.width);
    const auto h = static_cast<std::size_t>(shape.hidden);
    w1 = slot;
    b1 = w1 + h * d;
    w2 = b1 + h;
    b2 = w2 + d * h;
    if (shape.form == ExpertForm::kPlain) return;
    w3 = b2 + d;
    b3 = w3 + h * d;
  }
  Number *w1 = nullptr, *b1 = nullptr, *w2 = nullptr, *b2 = nullptr;
  Number *w3 = nullptr, *b3 = nullptr;
};

}  // namespace motley::moe::expert
