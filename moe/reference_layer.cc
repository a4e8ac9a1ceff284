#include "moe/reference_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "comm/error.h"
#include "moe/reference/expert.h"
#include "moe/reference/gate.h"

namespace motley::moe {
namespace {

using reference::ExpertSlot;
using reference::In;
using reference::Out;
using reference::row;

constexpr double kMaxParameters = 1 << 30;

// The options' sizes as they are used for indexing.
struct Sizes {
  explicit Sizes(const LayerOptions& options)
      : d(static_cast<std::size_t>(options.width)),
        h(static_cast<std::size_t>(options.hidden)),
        experts(static_cast<std::size_t>(options.experts)),
        k(static_cast<std::size_t>(options.top_k)),
        slot(reference::slot_count(d, h)) {}
  std::size_t d, h, experts, k, slot;

  std::size_t slot_first(std::int32_t expert) const {
    return experts * d + static_cast<std::size_t>(expert) * slot;
  }
};

// Throws kInvalid naming the first number of `values` [rows, columns] that is not finite.
void require_finite(In values, std::size_t columns, const char* what, const char* advice) {
  const auto bad = std::ranges::find_if(values, [](double v) { return !std::isfinite(v); });
  if (bad == values.end()) return;
  const auto at = static_cast<std::size_t>(bad - values.begin());
  throw Error(ErrorCode::kInvalid, fmt::format("moe layer: {} of token {}, column {} is {}. {}",
                                               what, at / columns, at % columns, *bad, advice));
}

void require_finite_parameters(const ReferenceLayer& layer, In values, const char* what,
                               const char* advice) {
  for (const ParameterInfo& info : layer.parameters()) {
    const In part = info.of(values);
    const auto bad = std::ranges::find_if(part, [](double v) { return !std::isfinite(v); });
    if (bad == part.end()) continue;
    throw Error(ErrorCode::kInvalid, fmt::format("moe layer: {} {}[{}] is {}. {}", what, info.name,
                                                 bad - part.begin(), *bad, advice));
  }
}

constexpr const char* kGiveFinite = "Pass finite numbers.";
constexpr const char* kScaleDown =
    "The result overflows float64: scale x, dy or the parameters down.";

}  // namespace

ReferenceLayer::ReferenceLayer(const LayerOptions& options) : options_(options) {
  validate(options);
  const double d = options.width, h = options.hidden;
  const double total = options.experts * (d + 2 * d * h + h + d);
  if (total > kMaxParameters) {
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("moe layer: {} experts of width {} and hidden {} have {:.3g} parameters. "
                    "The reference layer holds at most {:.0f}.",
                    options.experts, options.width, options.hidden, total, kMaxParameters));
  }
  const Sizes sizes(options);
  std::size_t first = 0;
  const auto add = [&](std::string name, std::vector<std::size_t> shape) {
    std::size_t count = 1;
    for (const std::size_t extent : shape) count *= extent;
    parameters_.push_back({std::move(name), std::move(shape), first, count});
    first += count;
  };
  add("gate", {sizes.experts, sizes.d});
  for (std::size_t e = 0; e < sizes.experts; ++e) {
    add(fmt::format("expert.{}.w1", e), {sizes.h, sizes.d});
    add(fmt::format("expert.{}.b1", e), {sizes.h});
    add(fmt::format("expert.{}.w2", e), {sizes.d, sizes.h});
    add(fmt::format("expert.{}.b2", e), {sizes.d});
  }
  values_.resize(first);
}

void ReferenceLayer::initialize(std::mt19937_64& random) {
  const Sizes sizes(options_);
  for (const ParameterInfo& info : parameters_) {
    const bool second = info.name.ends_with("2");  // w2 and b2 feed sums over h, the others over d
    const double bound = 1 / std::sqrt(static_cast<double>(second ? sizes.h : sizes.d));
    for (double& value : info.of(Out(values_))) {
      const double unit = static_cast<double>(random() >> 11) * 0x1p-53;  // in [0, 1), 53 bits
      value = (2 * unit - 1) * bound;
    }
  }
}

const ParameterInfo& ReferenceLayer::parameter(std::string_view name) const {
  const auto found = std::ranges::find(parameters_, name, &ParameterInfo::name);
  if (found != parameters_.end()) return *found;
  throw Error(
      ErrorCode::kInvalid,
      fmt::format("moe layer: there is no parameter \"{}\" among {} experts. Names are gate "
                  "and expert.0.w1, .b1, .w2, .b2 and so on.",
                  name, options_.experts));
}

Forward ReferenceLayer::forward(std::span<const double> x) const {
  const Sizes sizes(options_);
  if (x.size() % sizes.d != 0) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("moe layer: x holds {} numbers, not whole tokens of width {}. Pass "
                            "tokens * {} numbers.",
                            x.size(), sizes.d, sizes.d));
  }
  require_finite(x, sizes.d, "x", kGiveFinite);
  require_finite_parameters(*this, values_, "parameter", kGiveFinite);

  const std::size_t tokens = x.size() / sizes.d;
  const In values(values_);
  Forward result{.y = std::vector<double>(x.size(), 0.0),
                 .saved = {.x = {x.begin(), x.end()},
                           .routing = reference::gate_forward(
                               options_, values.first(sizes.experts * sizes.d), x),
                           .hidden = std::vector<double>(tokens * sizes.k * sizes.h),
                           .expert_output = std::vector<double>(tokens * sizes.k * sizes.d)}};
  Saved& saved = result.saved;
  for (std::size_t i = 0; i < tokens * sizes.k; ++i) {  // choice i % k of token i / k
    const std::size_t t = i / sizes.k;
    const ExpertSlot<In> weights(
        values.subspan(sizes.slot_first(saved.routing.expert[i]), sizes.slot), sizes.d, sizes.h);
    const Out output = row(Out(saved.expert_output), i, sizes.d);
    reference::expert_forward(weights, options_.activation, row(x, t, sizes.d),
                              {row(Out(saved.hidden), i, sizes.h), output});
    reference::add_scaled(row(Out(result.y), t, sizes.d), saved.routing.weight[i], output);
  }
  require_finite(result.y, sizes.d, "y", kScaleDown);
  if (!std::isfinite(saved.routing.balance_loss)) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("moe layer: the balance loss is {} with balance_scale {}. Lower it.",
                            saved.routing.balance_loss, options_.balance_scale));
  }
  return result;
}

void ReferenceLayer::require_matching(const Saved& saved, std::span<const double> dy) const {
  const Sizes sizes(options_);
  const ReferenceRouting& routing = saved.routing;
  const std::size_t tokens = routing.tokens;
  const std::size_t choices = tokens * sizes.k;
  const bool ours =
      saved.x.size() == tokens * sizes.d && routing.top_k == options_.top_k &&
      routing.expert.size() == choices && routing.weight.size() == choices &&
      routing.probability.size() == tokens * sizes.experts &&
      routing.count.size() == sizes.experts && saved.hidden.size() == choices * sizes.h &&
      saved.expert_output.size() == choices * sizes.d &&
      std::ranges::all_of(routing.expert,
                          [&](std::int32_t e) { return 0 <= e && e < options_.experts; });
  if (!ours) {
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("moe layer: `saved` is not of this layer (width {}, hidden {}, {} experts, "
                    "top_k {}). Pass what this layer's forward returned.",
                    options_.width, options_.hidden, options_.experts, options_.top_k));
  }
  if (dy.size() != saved.x.size()) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("moe layer: dy holds {} numbers but y held {}. Pass "
                            "one for each number of y.",
                            dy.size(), saved.x.size()));
  }
}

Gradients ReferenceLayer::backward(const Saved& saved, std::span<const double> dy,
                                   double dbalance) const {
  const Sizes sizes(options_);
  const ReferenceRouting& routing = saved.routing;
  require_matching(saved, dy);
  require_finite(dy, sizes.d, "dy", kGiveFinite);
  if (!std::isfinite(dbalance)) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("moe layer: dbalance is {}. {}", dbalance, kGiveFinite));
  }

  const In values(values_);
  Gradients gradients{.dx = std::vector<double>(dy.size(), 0.0),
                      .parameters = std::vector<double>(values_.size(), 0.0)};
  reference::RoutingGradient drouting{.weight = std::vector<double>(routing.weight.size()),
                                      .balance_loss = dbalance};
  std::vector<double> doutput(sizes.d);
  for (std::size_t i = 0; i < routing.expert.size(); ++i) {
    const std::size_t t = i / sizes.k;
    const In dy_row = row(dy, t, sizes.d);
    drouting.weight[i] = reference::dot(dy_row, row(In(saved.expert_output), i, sizes.d));
    for (std::size_t c = 0; c < sizes.d; ++c) doutput[c] = routing.weight[i] * dy_row[c];

    const std::size_t first = sizes.slot_first(routing.expert[i]);
    const ExpertSlot<In> weights(values.subspan(first, sizes.slot), sizes.d, sizes.h);
    const ExpertSlot<Out> dweights(Out(gradients.parameters).subspan(first, sizes.slot), sizes.d,
                                   sizes.h);
    reference::expert_backward(
        weights, options_.activation,
        {row(In(saved.x), t, sizes.d), row(In(saved.hidden), i, sizes.h), doutput},
        {dweights, row(Out(gradients.dx), t, sizes.d)});
  }

  const std::vector<double> dlogits =
      reference::gate_backward(options_, routing, std::move(drouting));
  const In gate = values.first(sizes.experts * sizes.d);
  const Out dgate = Out(gradients.parameters).first(gate.size());
  for (std::size_t t = 0; t < routing.tokens; ++t) {
    const In dlogit = row(In(dlogits), t, sizes.experts);
    reference::add_outer(dgate, dlogit, row(In(saved.x), t, sizes.d));
    reference::add_transposed_product(row(Out(gradients.dx), t, sizes.d), gate, dlogit);
  }
  require_finite(gradients.dx, sizes.d, "dx", kScaleDown);
  require_finite_parameters(*this, gradients.parameters, "gradient of", kScaleDown);
  return gradients;
}

}  // namespace motley::moe
