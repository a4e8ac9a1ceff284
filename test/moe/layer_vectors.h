// test/moe/layer_vectors.h: inputs of a layer with outputs and gradients that are known otherwise.
#pragma once

#include "test/moe/layer_cases.h"

namespace motley::moe {

// Worked by hand: width 2, hidden 2, two ReLU experts with softmax probabilities 3/4 and 1/4 at
// x = (1, 2), whose activations are (1, 0) and (3, 0) and whose outputs are (3, 0) and (3, 5).
inline const Numbers kXByHand = {1, 2};
ReferenceLayer layer_by_hand(int top_k);

// Computed outside this project from the equations in moe/README.md, densely, in 70-digit decimals;
// erf by its series, gradients by central differences with step 1e-20. Width 3, hidden 4, 4
// experts, 5 tokens, balance_scale 1/2.
struct LayerVector {
  const char* name;
  Activation activation;
  int top_k;
  GateWeight weight;
  BalanceLoss balance;
  std::vector<std::int32_t> expert;
  std::vector<std::int64_t> count;
  Numbers y;
  double balance_loss;
  Numbers dx;
  Numbers dgate;
  Numbers slot_squares;  // [experts], the sum of squares of each expert's parameter gradients
  double moment;         // the sum over all parameters i of gradient_i * (i mod 7 + 1)
};
const std::vector<LayerVector>& layer_vectors();

Numbers vector_x();   // x_i = ((7 i) mod 11 - 5) / 4
Numbers vector_dy();  // dy_i = ((4 i) mod 9 - 4) / 4
// Parameter i = ((5 i^2 + 3 i) mod 17 - 8) / 8.
ReferenceLayer vector_layer(const LayerVector& vector);

}  // namespace motley::moe
