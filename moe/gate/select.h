// moe/gate/select.h: which experts a batch's tokens choose, one function a way of choosing.
#pragma once

#include <vector>

#include "moe/gate.h"
#include "moe/gate/rows.h"

namespace motley::moe::gate {

struct Selection {
  const GateOptions& options;
  const GateInput& input;
  std::size_t tokens = 0;
  In logits;                    // [tokens, E], with noise
  In score;                     // [tokens, E]
  std::span<const float> bias;  // [E] with bias_rate, else empty

  std::size_t experts() const { return static_cast<std::size_t>(options.experts); }
  std::size_t k() const { return static_cast<std::size_t>(options.top_k); }
};

// All of them overwrite `chosen` [tokens, top_k], best first; equal experts by index.
void select_top_k(const Selection& selection, Chosen chosen);       // kTopK, kSam
void select_prototypes(const Selection& selection, Chosen chosen);  // kPrototypes
void select_base(const Selection& selection, Chosen chosen);        // kBase
void select_above(const Selection& selection, Chosen chosen);       // kDenseToSparse
void select_near(const Selection& selection, Chosen chosen);        // kTopologyLimited

// The best of `value`, best first; -infinity is never chosen (kNoExpert stands for what is
// missing).
void choose_best(In value, Chosen chosen);

}  // namespace motley::moe::gate
