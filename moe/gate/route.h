// moe/gate/route.h: what all gates do alike: check an input, and turn choices and weights into a
// Routing with its counts.
#pragma once

#include "moe/gate.h"

namespace motley::moe::gate {

// A result of the right sizes without choices. Throws kInvalid if input.token is not of `tokens`.
GateForward unrouted(const GateOptions& options, const GateInput& input, std::size_t tokens);

// From routing.expert and saved.weight: the rest of the routing, and the statistics that are of
// those alone.
void finish(const GateOptions& options, GateForward& result);

}  // namespace motley::moe::gate
