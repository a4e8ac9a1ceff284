#include <algorithm>
#include <cmath>
#include <limits>

#include "moe/gate/select.h"

namespace motley::moe::gate {
namespace {

// Tokens whose first choice is far, but for the best far_share of all tokens.
std::vector<std::size_t> tokens_to_stay(const Selection& selection, Chosen chosen) {
  std::vector<std::size_t> far;
  for (std::size_t t = 0; t < selection.tokens; ++t) {
    const auto first = static_cast<std::size_t>(chosen[t * selection.k()]);
    if (selection.input.near[first] == 0) far.push_back(t);
  }
  std::ranges::stable_sort(far, std::greater(), [&](std::size_t t) {
    return selection
        .score[t * selection.experts() + static_cast<std::size_t>(chosen[t * selection.k()])];
  });
  const double share = selection.options.far_share * static_cast<double>(selection.tokens);
  const std::size_t may_leave = std::min(far.size(), static_cast<std::size_t>(share));
  far.erase(far.begin(), far.begin() + static_cast<std::ptrdiff_t>(may_leave));
  return far;
}

}  // namespace

void select_near(const Selection& selection, Chosen chosen) {
  for (std::size_t t = 0; t < selection.tokens; ++t) {
    choose_best(row(selection.logits, t, selection.experts()), row(chosen, t, selection.k()));
  }
  if (selection.input.mode == GateMode::kEvaluate) return;
  for (const std::size_t t : tokens_to_stay(selection, chosen)) {
    const In logits = row(selection.logits, t, selection.experts());
    std::vector<double> near(logits.begin(), logits.end());
    for (std::size_t e = 0; e < near.size(); ++e) {
      if (selection.input.near[e] == 0) near[e] = -std::numeric_limits<double>::infinity();
    }
    choose_best(near, row(chosen, t, selection.k()));
  }
}

}  // namespace motley::moe::gate
