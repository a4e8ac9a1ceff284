// moe/gate/maps.h: a learned gate's parameters by name, and in float64 for the length of a call;
// a token's numbers with their jitter.
#pragma once

#include <memory>
#include <vector>

#include "moe/gate.h"
#include "moe/gate/token_map.h"

namespace motley::moe::gate {

std::vector<ParameterInfo> gate_layout(const GateOptions& options);

class GateMaps {
 public:
  GateMaps(const GateOptions& options, std::span<const float> parameters);

  TokenMap& logits() noexcept { return *logits_; }
  TokenMap* noise() noexcept { return noise_.get(); }  // null unless noise is learned
  // Adds what backward of the maps has gathered.
  void add_gradient_to(std::span<float> parameters) const;

 private:
  std::vector<double> values_;
  std::vector<double> gradient_;
  std::unique_ptr<TokenMap> logits_;
  std::unique_ptr<TokenMap> noise_;
};

class TokenRows {
 public:
  TokenRows(const GateOptions& options, const GateInput& input);

  // x of token t, with its jitter; valid until the next call.
  In of(std::size_t token);
  // Adds to dx of the token that `of` was last called for, from the gradient by what it gave.
  void add_gradient_to(std::span<float> dx, In drow) const;

 private:
  std::size_t width_;
  const GateInput& input_;
  double jitter_;  // 0: none
  std::size_t token_ = 0;
  std::vector<double> row_;
  std::vector<double> factor_;  // with jitter
};

}  // namespace motley::moe::gate
