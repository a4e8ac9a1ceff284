// moe/reference/balance.h: the balance losses of layer_options.h and their gradients.
#pragma once

#include "moe/layer_options.h"
#include "moe/reference/linear.h"
#include "moe/reference_routing.h"

namespace motley::moe::reference {

// Scaled by options.balance_scale; 0 for no tokens. Does not read routing.balance_loss.
double balance_loss(const LayerOptions& options, const ReferenceRouting& routing);

// Where the gradient of scale * balance_loss is added.
struct BalanceGradient {
  double scale = 0;
  Out dweight;       // [tokens, k]
  Out dprobability;  // [tokens, E]
};

void add_balance_gradient(const LayerOptions& options, const ReferenceRouting& routing,
                          const BalanceGradient& gradient);

}  // namespace motley::moe::reference
