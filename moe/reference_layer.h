// moe/reference_layer.h: the mixture-of-experts layer in one thread and double precision, written
// to be checked by eye. Faster and distributed versions must agree with it, values and gradients.
//
//   std::mt19937_64 random(7);
//   ReferenceLayer layer({.width = 64, .hidden = 256, .experts = 8, .top_k = 2});
//   layer.initialize(random);
//   auto [y, saved] = layer.forward(x);                 // x, y [tokens, 64]
//   Gradients gradients = layer.backward(saved, dy);    // dy [tokens, 64]: d(objective)/dy
//
// With gate matrix G, chosen experts e_0 … e_{k-1} of token x (routing.h) and their weights w_j:
//   y = sum_j w_j f_{e_j}(x)    f_e(x) = W2_e a(W1_e x + b1_e) + b2_e    p = softmax(G x)
// No token is ever dropped. No tokens, one expert, k = E and experts that no token chose are
// ordinary. Sums run in a fixed order (choices ascending, tokens ascending): equal inputs give
// equal bits in one build. y of a token does not depend on the other tokens. Matrices are
// row-major, outputs first.
#pragma once

#include <cstddef>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "moe/layer_options.h"
#include "moe/parameter_info.h"
#include "moe/reference_routing.h"

namespace motley::moe {

// What backward needs of forward. The fields are for comparing with; do not change them.
struct Saved {
  std::vector<double> x;  // [tokens, d]
  ReferenceRouting routing;
  std::vector<double> hidden;         // [tokens, k, h], W1 x + b1: before the activation
  std::vector<double> expert_output;  // [tokens, k, d], f_e(x): before weighting
};

struct Forward {
  std::vector<double> y;  // [tokens, d]
  Saved saved;            // saved.routing.balance_loss belongs to the objective
};

struct Gradients {
  std::vector<double> dx;          // [tokens, d]
  std::vector<double> parameters;  // as ReferenceLayer::values(); zero for experts nobody chose
};

class ReferenceLayer {
 public:
  // All parameters are zero. Throws kInvalid on bad options and beyond 2^30 parameters (8 GiB).
  explicit ReferenceLayer(const LayerOptions& options);

  const LayerOptions& options() const noexcept { return options_; }

  // Draws every parameter uniformly from [-1, 1) / sqrt(numbers that its output sums over).
  void initialize(std::mt19937_64& random);

  // All parameters: the gate, then each expert's w1, b1, w2, b2 in one contiguous slot.
  std::span<double> values() noexcept { return values_; }
  std::span<const double> values() const noexcept { return values_; }
  // "gate" [E, d]; "expert.3.w1" [h, d], "…b1" [h], "…w2" [d, h], "…b2" [d].
  const std::vector<ParameterInfo>& parameters() const noexcept { return parameters_; }
  // The one called `name`. Throws kInvalid if there is none.
  //   layer.parameter("expert.0.w2").of(gradients.parameters)
  const ParameterInfo& parameter(std::string_view name) const;

  //   x       [tokens, d], finite; any number of tokens
  //   cost    tokens * (E d + 2 k d h) multiplications; tokens * (E + k h + (k + 2) d) numbers kept
  //   errors  kInvalid if x is not whole tokens, if x or a parameter is not finite, or if the
  //   result
  //           overflows; the message names the place
  Forward forward(std::span<const double> x) const;

  // Gradients of objective = task(y) + balance_loss.
  //   saved     of a forward of this layer, whose parameters have not changed since
  //   dy        [tokens, d], d(task)/dy
  //   dbalance  d(objective)/d(balance_loss); 0 leaves the balance loss out
  //   cost      about twice forward's
  //   errors    kInvalid as above, and if `saved` is of another shape
  // The choice of experts is piecewise constant: no gradient flows through it.
  Gradients backward(const Saved& saved, std::span<const double> dy, double dbalance = 1) const;

 private:
  void require_matching(const Saved& saved, std::span<const double> dy) const;

  LayerOptions options_;
  std::vector<ParameterInfo> parameters_;
  std::vector<double> values_;
};

}  // namespace motley::moe
