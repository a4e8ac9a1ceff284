// wide/kernel/flow.h: runs a model's three functions over rows on the CPU.
//
// One pass reads a row's weights (gather), scores the row, and writes the weights back (scatter,
// AdaGrad) while they are still in the cache. J. Duchi, E. Hazan, Y. Singer, "Adaptive subgradient
// methods for online learning and stochastic optimization", JMLR 2011, for the update:
//   G += g^2,  w -= learning_rate * g / sqrt(G)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "wide/model.h"
#include "wide/samples.h"

namespace motley::wide {

struct UpdateOptions {
  float learning_rate = 0.1f;
  float l2 = 0;          // of a linear weight, added to the gradient of every entry that uses it
  float l2_factors = 0;  // the same for factors
  // Rows whose gradients are taken at the same weights and then applied as one sum; 1: each row is
  // applied at once, in the pass that reads it.
  std::size_t batch_rows = 1;
};

// Holds scratch memory only; the state is the caller's, laid out by Layout. One thread at a time.
class Flow {
 public:
  virtual ~Flow() = default;
  // Trains on `rows` of `samples`, in that order. Returns the sum of their losses, each measured
  // before its row changed anything.
  virtual double train(const Samples& samples, std::span<const std::uint64_t> rows,
                       const UpdateOptions& options, std::span<float> state) = 0;
  // out[i] becomes the score of row i. All rows.
  virtual void score(const Samples& samples, std::span<const float> state,
                     std::span<float> out) const = 0;
};

std::unique_ptr<Flow> make_flow(const ModelOptions& options, const Layout& layout);

}  // namespace motley::wide
