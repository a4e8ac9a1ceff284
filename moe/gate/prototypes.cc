#include "moe/gate/select.h"

namespace motley::moe::gate {

void select_prototypes(const Selection& selection, Chosen chosen) {
  const std::size_t size = selection.experts() / selection.k();
  for (std::size_t i = 0; i < chosen.size(); ++i) {  // group i % k of token i / k
    choose_best(row(selection.logits, i, size), chosen.subspan(i, 1));
    chosen[i] += static_cast<std::int32_t>(i % selection.k() * size);
  }
}

}  // namespace motley::moe::gate
