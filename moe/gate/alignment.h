// moe/gate/alignment.h: what experts outside of the chosen group score above the least chosen one:
// sum over e of max(0, s_e - s_least). It teaches the best experts into one group; after Jiang et
// al., "Towards more effective and economic sparsely-activated model", 2021.
#pragma once

#include "moe/gate/rows.h"

namespace motley::moe::gate {

struct AlignmentInput {
  std::size_t group_size = 1;            // experts of a group
  In score;                              // [E]
  std::span<const std::int32_t> chosen;  // of one group, best first
};

double alignment(const AlignmentInput& input);
// Adds scale * its gradient.
void alignment_backward(const AlignmentInput& input, double scale, Out dscore);

}  // namespace motley::moe::gate
