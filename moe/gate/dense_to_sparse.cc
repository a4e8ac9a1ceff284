#include "moe/gate/select.h"

namespace motley::moe::gate {

void select_above(const Selection& selection, Chosen chosen) {
  for (std::size_t t = 0; t < selection.tokens; ++t) {
    const In score = row(selection.score, t, selection.experts());
    const Chosen mine = row(chosen, t, selection.k());
    choose_best(row(selection.logits, t, score.size()), mine);
    for (std::int32_t& e : mine.subspan(1)) {
      if (score[static_cast<std::size_t>(e)] < selection.options.threshold) e = kNoExpert;
    }
  }
}

}  // namespace motley::moe::gate
