// moe/gate/noise.h: noise on a token's logits, and what backward must know of it.
#pragma once

#include "moe/gate/lots.h"
#include "moe/gate/rows.h"

namespace motley::moe::gate {

// Whether the scores are of other numbers than the logits.
bool has_noise(const GateOptions& options, GateMode mode);

// Overwrites deviation [E] of learned noise with noise_scale * softplus(raw) + 0.01, as in the
// program of Shazeer et al.: where it is nearly 0, the load's gradient is not finite.
void deviation_of(const GateOptions& options, In raw, Out deviation);
// Turns the gradient by the deviation into that by `raw`.
void deviation_backward(const GateOptions& options, In deviation, Out gradient);

// The deviation of constant noise.
double constant_deviation(const GateOptions& options);

// Adds a token's noise to its logits. `deviation` [E] where it is learned, else empty.
void add_noise(const GateOptions& options, const GateInput& input, std::size_t token, In deviation,
               Out logits);

}  // namespace motley::moe::gate
