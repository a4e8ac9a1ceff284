#include <algorithm>

#include "moe/gate/auction.h"
#include "moe/gate/select.h"

namespace motley::moe::gate {

void select_base(const Selection& selection, Chosen chosen) {
  if (selection.input.mode == GateMode::kEvaluate) {
    for (std::size_t t = 0; t < selection.tokens; ++t) {
      choose_best(row(selection.logits, t, selection.experts()), chosen.subspan(t, 1));
    }
    return;
  }
  std::ranges::copy(balanced_assignment(selection.logits, selection.experts()), chosen.begin());
}

}  // namespace motley::moe::gate
