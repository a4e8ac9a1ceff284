// runtime/optimizer.h: how a worker's own parameters follow its gradients.
//
//   AdaGrad optimizer(parameters.values(), {.learning_rate = 0.1});
//   backward(parameters.gradients());
//   optimizer.update(parameters.values(), parameters.gradients());
//
// All work element by element on float32 or float64 in host memory.
#pragma once

#include <cstddef>
#include <vector>

#include "comm/view.h"

namespace motley::runtime {

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // One step. parameters [n], gradients [n], of one dtype and, where the optimizer has a state, of
  // the n and dtype that it was made for. Throws kInvalid otherwise.
  virtual void update(View parameters, ConstView gradients) = 0;
  // What a checkpoint must keep, or workers average with the model; empty where there is nothing.
  virtual View state() noexcept = 0;
};

struct SgdOptions {
  double learning_rate = 0.01;
  double l2 = 0;  // weight decay: adds l2 * x to the gradient
};

// x -= learning_rate * (g + l2 * x)
class Sgd final : public Optimizer {
 public:
  // Throws kInvalid for options that are negative or not finite.
  explicit Sgd(const SgdOptions& options);
  void update(View parameters, ConstView gradients) override;
  View state() noexcept override { return {}; }

 private:
  SgdOptions options_;
};

struct AdaGradOptions {
  double learning_rate = 0.01;
  double l2 = 0;                   // as in SgdOptions
  double initial_accumulator = 0;  // G before the first step
  double epsilon = 1e-10;          // keeps the first steps finite
};

// G += g^2;  x -= learning_rate * g / (sqrt(G) + epsilon), with G of the dtype of x.
// J. Duchi, E. Hazan, Y. Singer, "Adaptive Subgradient Methods for Online Learning and Stochastic
// Optimization", JMLR 12 (2011), figure 1, diagonal form; epsilon outside of the root.
class AdaGrad final : public Optimizer {
 public:
  // For parameters like these; their values do not matter. Throws kInvalid for options that are
  // negative or not finite, and for a dtype other than float32 and float64.
  AdaGrad(ConstView parameters, const AdaGradOptions& options);
  void update(View parameters, ConstView gradients) override;
  View state() noexcept override;

 private:
  AdaGradOptions options_;
  std::size_t count_;
  DType dtype_;
  std::vector<std::byte> accumulators_;  // G, [count_] of dtype_
};

}  // namespace motley::runtime
