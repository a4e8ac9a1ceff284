// moe/layer.h: a mixture-of-experts layer over the ranks of a communicator: gate, dispatch,
// experts, combine, forward and backward. Start here.
//
//   const auto placement = Placement::grid({.experts = 8, .ranks = comm.size()});
//   Layer layer(comm, placement, {.gate = {.width = 64, .experts = 8, .top_k = 2},
//                                 .experts = {.shape = {.width = 64, .hidden = 256}}});
//   layer.initialize(random);                        // the same random numbers on all ranks
//   layer.forward({.x = x, .step = step}, y);        // x, y [tokens, 64]; each rank its own tokens
//   layer.backward(dy, dx);                          // d(task)/dy; the losses of balance are added
//   layer.reduce_gradients();                        // once a step; then an optimizer's step
//
// The objective is the sum of all ranks' tasks, times gradient_scale of the experts' options, plus
// the total of layer.losses(): those of the tokens of all ranks together, however they are split.
// dx is its gradient over gradient_scale, as dy is. All promises of expert_layer.h hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>

#include "moe/expert_layer.h"
#include "moe/gate.h"

namespace motley::moe {

struct LayerSettings {
  GateOptions gate{};
  ExpertLayerOptions experts{};
};

// Numbers of the gate that are not here: those of GateInput.
struct LayerInput {
  std::span<const float> x;  // [tokens, width]
  std::uint64_t seed = 0;
  std::int64_t step = 0;  // the same on all ranks
  GateMode mode = GateMode::kTrain;
  std::span<const std::int64_t> token{};       // [tokens], ids unique over all ranks
  std::span<const std::int32_t> vocabulary{};  // [tokens]; for kHash
};

class Layer {
 public:
  //   errors  kInvalid as make_gate() and ExpertLayer, and where the gate and the experts differ in
  //           width or the placement in experts
  Layer(Communicator& comm, const Placement& placement, const LayerSettings& settings,
        std::unique_ptr<ReplicaChooser> chooser = nullptr);
  ~Layer();
  Layer(Layer&&) noexcept;
  Layer& operator=(Layer&&) noexcept;

  // Draws all parameters, of the gate, then of every expert: uniform in [-1, 1) / sqrt(numbers that
  // an output sums over). The same on all ranks that bring equal random numbers.
  void initialize(std::mt19937_64& random);

  Gate& gate() noexcept;
  ExpertLayer& experts() noexcept;
  // As gate().parameters(): the same on all ranks after reduce_gradients().
  std::span<float> gate_gradients() noexcept;

  // `x` is read again in backward. Errors as ExpertLayer::forward; what the gate refuses on one
  // rank is an error on all.
  void forward(const LayerInput& input, std::span<float> y);
  // Losses of the last forward, of all ranks' tokens: the same on all.
  BalanceLosses losses() const;
  const BalanceStatistics& statistics() const noexcept;
  // Overwrites dx and the gradients.
  void backward(std::span<const float> dy, std::span<float> dx);
  // Adds up the gate's gradients over all ranks and the experts' over replicas.
  void reduce_gradients();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace motley::moe
