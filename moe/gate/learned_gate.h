// moe/gate/learned_gate.h: all gates but the hash: logits from the token's numbers, noise, scores,
// a way of choosing, weights. A kind is a way of choosing; the rest is common.
#pragma once

#include "moe/gate.h"

namespace motley::moe::gate {

class LearnedGate : public Gate {
 public:
  explicit LearnedGate(const GateOptions& options);

  const GateOptions& options() const noexcept override { return options_; }
  std::span<float> parameters() noexcept override { return parameters_; }
  std::span<const float> parameters() const noexcept override { return parameters_; }
  const std::vector<ParameterInfo>& layout() const noexcept override { return layout_; }
  std::span<float> state() noexcept override { return bias_; }
  std::span<const float> state() const noexcept override { return bias_; }
  void initialize(std::mt19937_64& random) override;
  GateForward forward(const GateInput& input) const override;
  void backward(const GateInput& input, const GateForward& gated, const GateGradient& gradient,
                const GateGradientOut& out) const override;
  void end_step(const BalanceStatistics& statistics) override;

 private:
  std::size_t tokens_of(const GateInput& input) const;
  void make_logits(const GateInput& input, std::size_t tokens, GateSaved& saved) const;
  void choose(const GateInput& input, GateForward& result) const;
  [[noreturn]] void refuse_logits(const GateInput& input, std::size_t token) const;
  void require_matching(const GateInput& input, const GateForward& gated,
                        const GateGradient& gradient, const GateGradientOut& out) const;

  GateOptions options_;
  std::vector<ParameterInfo> layout_;
  std::vector<float> parameters_;
  std::vector<float> bias_;
};

}  // namespace motley::moe::gate
