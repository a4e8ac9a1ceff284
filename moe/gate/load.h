// moe/gate/load.h: how likely each expert would be among the k best if its noise were drawn again:
// P_e = Phi((l_e - m_e) / deviation_e), with m_e the k-th largest noisy logit of the others.
// Shazeer et al. 2017, equations 8 and 9.
#pragma once

#include "moe/gate/rows.h"

namespace motley::moe::gate {

// One token's numbers, [E] each.
struct LoadInput {
  std::size_t k = 1;  // below E
  In logits;
  In noisy;
  In deviation;
};

// Adds P to `load`.
void add_load(const LoadInput& input, Out load);

struct LoadGradient {
  Out logits;
  Out noisy;
  Out deviation;
};

// Adds the gradients of <dload, P>.
void load_backward(const LoadInput& input, In dload, const LoadGradient& gradient);

}  // namespace motley::moe::gate
