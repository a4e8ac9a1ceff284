#include "moe/gate/load.h"

#include <cmath>
#include <numbers>
#include <vector>

#include "moe/gate/select.h"

namespace motley::moe::gate {
namespace {

// The k-th and the next best: what an expert outside or inside of the k best must beat.
class Rivals {
 public:
  explicit Rivals(const LoadInput& input) : noisy_(input.noisy), best_(input.k + 1) {
    choose_best(noisy_, best_);
  }
  std::size_t of(std::size_t expert) const {
    const std::size_t last = best_.size() - 2;
    for (std::size_t j = 0; j <= last; ++j) {
      if (static_cast<std::size_t>(best_[j]) == expert) {
        return static_cast<std::size_t>(best_[last + 1]);
      }
    }
    return static_cast<std::size_t>(best_[last]);
  }

 private:
  In noisy_;
  std::vector<std::int32_t> best_;
};

double margin(const LoadInput& input, std::size_t expert, std::size_t rival) {
  return (input.logits[expert] - input.noisy[rival]) / input.deviation[expert];
}

}  // namespace

void add_load(const LoadInput& input, Out load) {
  const Rivals rivals(input);
  for (std::size_t e = 0; e < load.size(); ++e) {
    load[e] += 0.5 * std::erfc(-margin(input, e, rivals.of(e)) / std::numbers::sqrt2);
  }
}

void load_backward(const LoadInput& input, In dload, const LoadGradient& gradient) {
  const Rivals rivals(input);
  for (std::size_t e = 0; e < dload.size(); ++e) {
    const std::size_t rival = rivals.of(e);
    const double z = margin(input, e, rival);
    const double density =
        std::exp(-0.5 * z * z) * 0.5 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
    const double dmargin = dload[e] * density / input.deviation[e];
    gradient.logits[e] += dmargin;
    gradient.noisy[rival] -= dmargin;
    gradient.deviation[e] -= dmargin * z;
  }
}

}  // namespace motley::moe::gate
