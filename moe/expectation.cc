#include "moe/expectation.h"

#include <cassert>
#include <cmath>

namespace motley::moe {

double expected_parts(int experts, int top_k, int parts) {
  assert(parts >= 1 && experts % parts == 0 && top_k >= 0 && top_k <= experts);
  double missed = 1;  // the probability that none of k draws without return hits a part
  for (int i = 0; i < top_k; ++i) {
    const double outside = experts - experts / parts - i;
    missed *= outside > 0 ? outside / (experts - i) : 0;
  }
  return parts * (1 - missed);
}

double expected_active(int experts, int top_k, int tokens) {
  assert(experts >= 1 && top_k >= 0 && top_k <= experts && tokens >= 0);
  return experts * (1 - std::pow(1 - static_cast<double>(top_k) / experts, tokens));
}

}  // namespace motley::moe
