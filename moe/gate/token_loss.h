// moe/gate/token_loss.h: one token's part in the sums of the balance losses, and their gradients.
#pragma once

#include "moe/gate.h"
#include "moe/gate/rows.h"

namespace motley::moe::gate {

// One token of a forward.
struct TokenView {
  TokenView(const GateOptions& gate_options, GateMode mode, const GateForward& gated,
            std::size_t token);

  const GateOptions& options;
  std::span<const std::int32_t> chosen;  // [k]
  In weight;                             // [k]
  In logits, noisy, score;               // [E]
  std::vector<double> deviation;         // [E], with a load loss
  bool has_load = false;
};

// Adds all but what follows from choices and weights. The load and z sums only if their loss has a
// scale above 0; the load only with noise.
void add_token(const TokenView& token, BalanceStatistics& statistics);

// Gradients of one token's numbers, [E] each.
struct TokenGradient {
  Out score;
  Out logits;
  Out noisy;
  Out deviation;
};

// Adds the gradient of scale * sum of gradient_of_sums * this token's sums.
void add_token_gradient(const TokenView& token, const BalanceStatistics& gradient_of_sums,
                        double scale, const TokenGradient& gradient);

}  // namespace motley::moe::gate
