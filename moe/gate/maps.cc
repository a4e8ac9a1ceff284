#include "moe/gate/maps.h"

#include "moe/gate/lots.h"

namespace motley::moe::gate {
namespace {

CosineSizes cosine_sizes(const GateOptions& options) {
  return {.width = static_cast<std::size_t>(options.width),
          .projection = static_cast<std::size_t>(options.projection),
          .experts = static_cast<std::size_t>(options.experts)};
}

}  // namespace

std::vector<ParameterInfo> gate_layout(const GateOptions& options) {
  std::vector<ParameterInfo> layout;
  const auto add = [&](const char* name, std::vector<std::size_t> shape) {
    const std::size_t first = layout.empty() ? 0 : layout.back().first + layout.back().count;
    std::size_t count = 1;
    for (const std::size_t extent : shape) count *= extent;
    layout.push_back({name, std::move(shape), first, count});
  };
  const CosineSizes sizes = cosine_sizes(options);
  if (options.logits == GateLogits::kCosine) {
    add("gate.projection", {sizes.projection, sizes.width});
    add("gate.projection_bias", {sizes.projection});
    add("gate.embedding", {sizes.experts, sizes.projection});
    add("gate.temperature", {1});
  } else {
    add("gate", {sizes.experts, sizes.width});
  }
  if (options.noise == GateNoise::kLearned) add("gate.noise", {sizes.experts, sizes.width});
  return layout;
}

GateMaps::GateMaps(const GateOptions& options, std::span<const float> parameters)
    : values_(parameters.begin(), parameters.end()), gradient_(parameters.size(), 0.0) {
  const CosineSizes sizes = cosine_sizes(options);
  const std::size_t noise = options.noise == GateNoise::kLearned ? sizes.experts * sizes.width : 0;
  const std::size_t rest = values_.size() - noise;
  const MapParameters main{In(values_).first(rest), Out(gradient_).first(rest)};
  logits_ = options.logits == GateLogits::kCosine ? cosine_map(sizes, main)
                                                  : linear_map(sizes.width, main);
  if (noise == 0) return;
  noise_ = linear_map(sizes.width, {In(values_).subspan(rest), Out(gradient_).subspan(rest)});
}

void GateMaps::add_gradient_to(std::span<float> parameters) const {
  for (std::size_t i = 0; i < gradient_.size(); ++i) {
    parameters[i] = static_cast<float>(parameters[i] + gradient_[i]);
  }
}

TokenRows::TokenRows(const GateOptions& options, const GateInput& input)
    : width_(static_cast<std::size_t>(options.width)),
      input_(input),
      jitter_(input.mode == GateMode::kTrain ? options.jitter : 0),
      row_(width_),
      factor_(jitter_ > 0 ? width_ : 0) {}

In TokenRows::of(std::size_t token) {
  token_ = token;
  const std::span<const float> x = row(input_.x, token, width_);
  for (std::size_t i = 0; i < width_; ++i) row_[i] = x[i];
  if (jitter_ == 0) return row_;
  const Lots lots(input_, Purpose::kJitter, token);
  for (std::size_t i = 0; i < width_; ++i) {
    factor_[i] = 1 + jitter_ * (2 * lots.uniform(i) - 1);
    row_[i] *= factor_[i];
  }
  return row_;
}

void TokenRows::add_gradient_to(std::span<float> dx, In drow) const {
  const std::span<float> out = row(dx, token_, width_);
  for (std::size_t i = 0; i < width_; ++i) {
    const double factor = jitter_ == 0 ? 1 : factor_[i];
    out[i] = static_cast<float>(out[i] + factor * drow[i]);
  }
}

}  // namespace motley::moe::gate
