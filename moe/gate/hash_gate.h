// moe/gate/hash_gate.h: experts by a hash of the token's vocabulary id, all of one weight. Roller
// et al., "Hash layers for large sparse models", 2021.
#pragma once

#include "moe/gate.h"

namespace motley::moe::gate {

class HashGate : public Gate {
 public:
  explicit HashGate(const GateOptions& options) : options_(options) {}

  const GateOptions& options() const noexcept override { return options_; }
  std::span<float> parameters() noexcept override { return {}; }
  std::span<const float> parameters() const noexcept override { return {}; }
  const std::vector<ParameterInfo>& layout() const noexcept override { return layout_; }
  std::span<float> state() noexcept override { return {}; }
  std::span<const float> state() const noexcept override { return {}; }
  void initialize(std::mt19937_64&) override {}
  GateForward forward(const GateInput& input) const override;
  void backward(const GateInput&, const GateForward&, const GateGradient&,
                const GateGradientOut&) const override {}
  void end_step(const BalanceStatistics&) override {}

 private:
  GateOptions options_;
  std::vector<ParameterInfo> layout_;  // empty
};

}  // namespace motley::moe::gate
