// moe/reference_routing.h: what a gate decided about a batch of tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace motley::moe {

// Choice j of token t is at t * top_k + j. A token's choices are distinct and stand best first:
// higher logit, then lower expert index.
struct ReferenceRouting {
  std::size_t tokens = 0;
  int top_k = 0;
  std::vector<std::int32_t> expert;  // [tokens, top_k]
  std::vector<double> weight;        // [tokens, top_k], what combine multiplies the outputs with
  std::vector<double> probability;   // [tokens, experts], softmax over all experts
  std::vector<std::int64_t> count;   // [experts], choices of each expert by all tokens
  double balance_loss = 0;           // scaled: ready to be added to the objective
};

}  // namespace motley::moe
