// runtime/optimizer.h: how a worker's own parameters follow its gradients.
//
//   Adam optimizer(parameters.values(), {.learning_rate = 0.001});
//   backward(parameters.gradients());
//   optimizer.set_learning_rate(schedule.at(samples));      // learning_rate.h
//   optimizer.update(parameters.values(), parameters.gradients());
//
// All work element by element on float32 or float64 in host memory; for 16-bit copies of float32
// parameters see loss_scale.h. Below x is a parameter, g its gradient plus l2 * x. Constructors
// throw kInvalid for options that are negative, not finite, or 1 and more where they weigh the
// past; and for a dtype other than float32 and float64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/view.h"
#include "runtime/state.h"

namespace motley::runtime {

class Optimizer {
 public:
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  // One step. parameters [n], gradients [n], of the n and dtype that the optimizer was made for.
  // Throws kInvalid otherwise.
  void update(View parameters, ConstView gradients);
  // The same in parts, with the same bits, as gradients become complete while others are still
  // computed: begin_update(), then for elements [first, first + count), each once.
  void begin_update() { begin(); }
  void update_part(View parameters, ConstView gradients, std::size_t first, std::size_t count);
  // Adds what must be saved, averaged with the model and handed to joiners, named "adam.step" and
  // the like. Moments are averages over gradients, so their mean over workers is the moment of the
  // mean gradient; the largest step is kept, as its bias correction is the nearest to none.
  virtual void list(State& state) = 0;

  double learning_rate() const noexcept { return learning_rate_; }
  // From the next step on. Throws kInvalid if negative or not finite.
  void set_learning_rate(double rate);

 protected:
  Optimizer(std::string name, ConstView parameters, double learning_rate, double l2);

  // One accumulator per parameter, of the parameters' dtype, from `initial`.
  void add_slot(std::string name, double initial = 0);
  View slot(std::size_t i) noexcept;
  void list_slots(State& state);
  // Throws kInvalid unless 0 <= value (< 1 for a weight), and finite.
  void check_option(const char* option, double value) const;
  void check_weight(const char* option, double value) const;
  // Throws kInvalid unless both are what this optimizer was made for; then calls
  // body(T{}) for the C++ type of the parameters.
  template <class Body>
  void step(ConstView parameters, ConstView gradients, Body body) const;

  struct Part {
    std::size_t first;
    std::size_t end;
  };
  // A step begins; `part` of it.
  virtual void begin() {}
  virtual void follow(View parameters, ConstView gradients, Part part) = 0;

  double l2() const noexcept { return l2_; }

 private:
  struct Slot {
    std::string name;
    std::vector<std::byte> memory;
  };

  std::string name_;
  std::size_t count_;
  DType dtype_;
  double learning_rate_;
  double l2_;
  std::vector<Slot> slots_;
};

struct SgdOptions {
  double learning_rate = 0.01;
  double l2 = 0;        // weight decay: adds l2 * x to the gradient
  double momentum = 0;  // weight of the past steps
  bool nesterov = false;
};

// v = momentum * v + g;  x -= learning_rate * v, or, with nesterov, (g + momentum * v).
// I. Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML
// 2013, equations 1 to 4, in PyTorch's form: the learning rate is outside of v, so that a schedule
// acts at once. Without momentum there is no v.
class Sgd final : public Optimizer {
 public:
  Sgd(ConstView parameters, const SgdOptions& options);
  void list(State& state) override { list_slots(state); }

 private:
  void follow(View parameters, ConstView gradients, Part part) override;

  SgdOptions options_;
};

struct AdaGradOptions {
  double learning_rate = 0.01;
  double l2 = 0;                   // as in SgdOptions
  double initial_accumulator = 0;  // G before the first step
  double epsilon = 1e-10;          // keeps the first steps finite
};

// G += g^2;  x -= learning_rate * g / (sqrt(G) + epsilon).
// J. Duchi, E. Hazan, Y. Singer, "Adaptive Subgradient Methods for Online Learning and Stochastic
// Optimization", JMLR 12 (2011), figure 1, diagonal form; epsilon outside of the root.
class AdaGrad final : public Optimizer {
 public:
  AdaGrad(ConstView parameters, const AdaGradOptions& options);
  void list(State& state) override { list_slots(state); }

 private:
  void follow(View parameters, ConstView gradients, Part part) override;

  AdaGradOptions options_;
};

struct AdamOptions {
  double learning_rate = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double l2 = 0;            // as in SgdOptions
  double weight_decay = 0;  // AdamW: beside the gradient, past both moments
};

// t += 1;  m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g^2;
// x -= learning_rate * (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon) + weight_decay * x)
// D. Kingma, J. Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015, algorithm 1.
// With weight_decay it is AdamW: I. Loshchilov, F. Hutter, "Decoupled Weight Decay Regularization",
// ICLR 2019, algorithm 2, the schedule's multiplier being part of the learning rate.
class Adam final : public Optimizer {
 public:
  Adam(ConstView parameters, const AdamOptions& options);
  void list(State& state) override;

 private:
  void begin() override { ++step_; }
  void follow(View parameters, ConstView gradients, Part part) override;

  AdamOptions options_;
  std::int64_t step_ = 0;  // t
};

struct FtrlOptions {
  double learning_rate = 0.1;  // alpha, above 0
  double beta = 1;             // keeps the first rates from being large
  double l1 = 0;               // sets parameters to exactly 0
  double l2 = 0;               // in the closed form below, not in g
};

// With the rate of each parameter eta = alpha / (beta + sqrt(N)):
//   sigma = 1 / (eta after N += g^2) - 1 / (eta before);  z += g - sigma * x
//   x = 0 where |z| <= l1, else -(z - sign(z) * l1) / (1 / eta + l2)
// H. B. McMahan et al., "Ad Click Prediction: a View from the Trenches", KDD 2013, algorithm 1
// (FTRL- proximal). x is made anew from z and N, which begin so that the first x is `parameters`; N
// = 0. A step at a learning rate of 0 changes nothing.
class Ftrl final : public Optimizer {
 public:
  // The values of `parameters` matter here.
  Ftrl(ConstView parameters, const FtrlOptions& options);
  void list(State& state) override;

 private:
  void begin() override;
  void follow(View parameters, ConstView gradients, Part part) override;

  FtrlOptions options_;
  double last_rate_;   // alpha of the last step
  double change_ = 0;  // of 1 / alpha, since the step before that
};

}  // namespace motley::runtime
