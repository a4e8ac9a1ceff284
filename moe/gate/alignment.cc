#include "moe/gate/alignment.h"

#include <algorithm>

namespace motley::moe::gate {
namespace {

bool outside(const AlignmentInput& input, std::size_t expert) {
  return expert / input.group_size != static_cast<std::size_t>(input.chosen[0]) / input.group_size;
}

std::size_t least_of(const AlignmentInput& input) {
  return static_cast<std::size_t>(input.chosen.back());
}

}  // namespace

double alignment(const AlignmentInput& input) {
  const double least = input.score[least_of(input)];
  double sum = 0;
  for (std::size_t e = 0; e < input.score.size(); ++e) {
    if (outside(input, e)) sum += std::max(0.0, input.score[e] - least);
  }
  return sum;
}

void alignment_backward(const AlignmentInput& input, double scale, Out dscore) {
  const std::size_t least = least_of(input);
  for (std::size_t e = 0; e < input.score.size(); ++e) {
    if (!outside(input, e) || input.score[e] <= input.score[least]) continue;
    dscore[e] += scale;
    dscore[least] -= scale;
  }
}

}  // namespace motley::moe::gate
