// moe/reference/gate.h: the top-k softmax gate: which experts see a token, and with what weight.
#pragma once

#include <vector>

#include "moe/layer_options.h"
#include "moe/reference/linear.h"
#include "moe/reference_routing.h"

namespace motley::moe::reference {

// Routes x [tokens, d] by the logits G x, with `gate` = G [E, d]. Throws kInvalid if a logit
// overflows.
ReferenceRouting gate_forward(const LayerOptions& options, In gate, In x);

// Gradients of an objective that knows the weights and the balance loss of a routing.
struct RoutingGradient {
  std::vector<double> weight;  // [tokens, k]
  double balance_loss = 0;
};

// d(objective)/d(logits) [tokens, E], for the choices as they are.
std::vector<double> gate_backward(const LayerOptions& options, const ReferenceRouting& routing,
                                  RoutingGradient gradient);

}  // namespace motley::moe::reference
