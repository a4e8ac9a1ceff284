// moe/expectation.h: what to expect of a gate that chooses k of E experts without preference, for
// cost models and planners.
#pragma once

namespace motley::moe {

// How many of `parts` equal parts of the experts (ranks, hosts) a token reaches:
// parts * (1 - C(E - E / parts, k) / C(E, k)). A token sent once to each part saves
// 1 - expected_parts / k of the bytes. `parts` must divide `experts`, and top_k be in [0, experts].
double expected_parts(int experts, int top_k, int parts);

// How many experts at least one of `tokens` tokens chooses: E (1 - (1 - k / E)^tokens).
double expected_active(int experts, int top_k, int tokens);

}  // namespace motley::moe
