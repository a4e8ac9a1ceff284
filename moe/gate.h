// moe/gate.h: gates: which experts see a token and with what weight, and how that learns.
//
//   std::unique_ptr<Gate> gate = make_gate({.width = 64, .experts = 8, .top_k = 2});
//   gate->initialize(random);
//   GateInput input{.x = x, .seed = 1, .step = step, .token = ids};
//   GateForward gated = gate->forward(input);              // gated.routing, for make_plan
//   … all-reduce gated.statistics.sums() …                 // where ranks share a batch
//   gate->backward(input, gated, {.dweight = dweight, .statistics = sums}, {dparameters, dx});
//   gate->end_step(sums_of_step);                          // biases, once per step
//
// Random numbers are functions of (seed, step, token id): a token draws the same in whatever batch
// and on whatever rank it is. In evaluation nothing is random and a token's routing does not depend
// on others; in training it does for kBase and kTopologyLimited, as is their purpose. Numbers are
// float32 outside, float64 inside, summed in a fixed order: same inputs, same bits in one build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "moe/balance.h"
#include "moe/gate_options.h"
#include "moe/parameter_info.h"
#include "moe/routing.h"

namespace motley::moe {

enum class GateMode : std::uint8_t { kTrain, kEvaluate };

struct GateInput {
  std::span<const float> x;  // [tokens, width]; kHash takes the number of tokens from vocabulary
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  GateMode mode = GateMode::kTrain;
  std::span<const std::int64_t> token;  // [tokens], ids unique over all ranks; empty: 0, 1, …
  std::span<const std::int32_t> vocabulary;  // [tokens], at least 0; kHash
  std::span<const std::uint8_t> near;  // [experts], 1 on this host; kTopologyLimited in training
};

// What backward needs of forward, all [tokens, experts]. For comparing with; do not change it.
struct GateSaved {
  std::vector<double> logits;     // l
  std::vector<double> noisy;      // what the scores are of; empty: the logits
  std::vector<double> deviation;  // of the noise, where it is learned
  std::vector<double> score;      // s
  std::vector<double> weight;     // [tokens, top_k], before it is rounded to float32
};

struct GateForward {
  Routing routing;  // its priority is a token's best score
  GateSaved saved;
  BalanceStatistics statistics;  // of these tokens
};

// Gradients of objective = task + gate.losses(statistics).total().
struct GateGradient {
  std::span<const float> dweight;       // [tokens, top_k], d(task)/d(routing.weight)
  const BalanceStatistics& statistics;  // sums over all tokens of which the losses are
  double dloss = 1;                     // d(objective)/d(total); 0 leaves the losses out
};

// Where backward adds.
struct GateGradientOut {
  std::span<float> parameters;  // as Gate::parameters()
  std::span<float> dx;          // [tokens, width]
};

class Gate {
 public:
  virtual ~Gate() = default;

  virtual const GateOptions& options() const noexcept = 0;
  // Trained by gradients, in one array; layout() names its parts. Zero at first.
  virtual std::span<float> parameters() noexcept = 0;
  virtual std::span<const float> parameters() const noexcept = 0;
  virtual const std::vector<ParameterInfo>& layout() const noexcept = 0;
  // What end_step changes, and a checkpoint keeps: the bias [experts] with bias_rate, else nothing.
  virtual std::span<float> state() noexcept = 0;
  virtual std::span<const float> state() const noexcept = 0;

  // Matrices uniform in [-1, 1) / sqrt(numbers that an output sums over), in the order of layout().
  virtual void initialize(std::mt19937_64& random) = 0;

  //   errors  kInvalid on spans of wrong size, on numbers that are not finite (the message names
  //           token and column, or the parameter), on ids out of range
  virtual GateForward forward(const GateInput& input) const = 0;

  // `input` as forward had it, `gated` of a forward since which no parameter changed. The choice is
  // piecewise constant: no gradient flows through it, nor through counts.
  virtual void backward(const GateInput& input, const GateForward& gated,
                        const GateGradient& gradient, const GateGradientOut& out) const = 0;

  BalanceLosses losses(const BalanceStatistics& statistics) const {
    return balance_losses(statistics, options().losses);
  }

  // Moves the bias by bias_rate towards experts that got less than the mean, away from others. Call
  // it once after each step, with sums over all its ranks and micro-batches. Wang et al. 2024.
  virtual void end_step(const BalanceStatistics& statistics) = 0;
};

// Throws kInvalid on bad options.
std::unique_ptr<Gate> make_gate(const GateOptions& options);

}  // namespace motley::moe
