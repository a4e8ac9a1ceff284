// moe/gate/auction.h: equal numbers of tokens for all experts, at nearly the largest sum of values.
#pragma once

#include <cstdint>
#include <vector>

#include "moe/gate/rows.h"

namespace motley::moe::gate {

// Every token's expert, where each expert gets floor(tokens / experts) or one more. The sum of
// value[token, expert] is less than the largest by at most (tokens + experts) * 1e-4 of the range
// of values. Bertsekas, "The auction algorithm: a distributed relaxation method for the assignment
// problem", 1988, with scaling of the increment.
std::vector<std::int32_t> balanced_assignment(In value, std::size_t experts);

}  // namespace motley::moe::gate
