#include "moe/layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "comm/error.h"
#include "comm/topology.h"
#include "moe/digest.h"

namespace motley::moe {
namespace {

void require_same(const char* what, int gate, int other) {
  if (gate == other || gate == 0) return;
  throw Error(ErrorCode::kInvalid,
              fmt::format("moe layer: the gate's {} is {}, the experts' {}. They must be equal.",
                          what, gate, other));
}

// 1 for experts with a replica on this rank's host.
std::vector<std::uint8_t> near_experts(const Communicator& comm, const Placement& placement) {
  std::vector<std::uint8_t> near(static_cast<std::size_t>(placement.experts()), 0);
  for (const PhysicalExpert& p : placement.physical()) {
    if (comm.topology().same_host(p.rank, comm.rank())) {
      near[static_cast<std::size_t>(p.expert)] = 1;
    }
  }
  return near;
}

void draw(std::span<float> numbers, std::size_t terms, std::mt19937_64& random) {
  const double scale = 1 / std::sqrt(static_cast<double>(terms));
  for (float& x : numbers) {
    x = static_cast<float>((static_cast<double>(random() >> 11) * 0x1p-52 - 1) * scale);
  }
}

ExpertLayerOptions with_gate(ExpertLayerOptions options, const GateOptions& gate) {
  options.agreement = Digest().add(options.agreement).add(digest(gate)).value();
  return options;
}

}  // namespace

struct Layer::Impl {
  Impl(Communicator& comm_, const Placement& placement, const LayerSettings& settings,
       std::unique_ptr<ReplicaChooser> chooser)
      : comm(&comm_),
        gate(make_gate(settings.gate)),
        experts(comm_, placement, with_gate(settings.experts, settings.gate), std::move(chooser)),
        near(near_experts(comm_, placement)),
        gate_gradients(gate->parameters().size()) {}

  Communicator* comm;
  std::unique_ptr<Gate> gate;
  ExpertLayer experts;
  std::vector<std::uint8_t> near;
  std::vector<float> gate_gradients;

  // Of the last forward.
  GateInput input;
  std::vector<float> x;
  std::vector<std::int64_t> token;
  std::vector<std::int32_t> vocabulary;
  GateForward gated;
  BalanceStatistics sums;

  void keep(const LayerInput& in);
};

Layer::Layer(Communicator& comm, const Placement& placement, const LayerSettings& settings,
             std::unique_ptr<ReplicaChooser> chooser) {
  require_same("width", settings.gate.width, settings.experts.shape.width);
  require_same("number of experts", settings.gate.experts, placement.experts());
  impl_ = std::make_unique<Impl>(comm, placement, settings, std::move(chooser));
}
Layer::~Layer() = default;
Layer::Layer(Layer&&) noexcept = default;
Layer& Layer::operator=(Layer&&) noexcept = default;

Gate& Layer::gate() noexcept { return *impl_->gate; }
ExpertLayer& Layer::experts() noexcept { return impl_->experts; }
std::span<float> Layer::gate_gradients() noexcept { return impl_->gate_gradients; }
const BalanceStatistics& Layer::statistics() const noexcept { return impl_->sums; }
BalanceLosses Layer::losses() const { return impl_->gate->losses(impl_->sums); }

void Layer::initialize(std::mt19937_64& random) {
  impl_->gate->initialize(random);
  const ExpertShape& shape = impl_->experts.options().shape;
  const auto d = static_cast<std::size_t>(shape.width), h = static_cast<std::size_t>(shape.hidden);
  std::vector<float> slot(shape.slot_count());
  for (std::int32_t e = 0; e < impl_->experts.placement().experts(); ++e) {
    const std::span<float> all = slot;
    draw(all.first(h * d + h), d, random);
    draw(all.subspan(h * d + h, d * h + d), h, random);
    draw(all.subspan(2 * h * d + h + d), d, random);
    impl_->experts.load(e, slot);
  }
}

void Layer::Impl::keep(const LayerInput& in) {
  x.assign(in.x.begin(), in.x.end());
  token.assign(in.token.begin(), in.token.end());
  vocabulary.assign(in.vocabulary.begin(), in.vocabulary.end());
  input = {.x = x,
           .seed = in.seed,
           .step = in.step,
           .mode = in.mode,
           .token = token,
           .vocabulary = vocabulary,
           .near = near};
}

void Layer::forward(const LayerInput& in, std::span<float> y) {
  Impl& l = *impl_;
  l.keep(in);
  try {
    l.gated = l.gate->forward(l.input);
  } catch (...) {
    const auto width = static_cast<std::size_t>(l.experts.options().shape.width);
    l.experts.refuse(std::current_exception(), in.x.size() / width);
  }
  l.experts.forward({.x = l.x, .routing = l.gated.routing, .step = in.step}, y);
  l.sums = l.gated.statistics;
  l.comm
      ->all_reduce(l.sums.sums(), ReduceOp::kSum,
                   {.timeout = l.experts.options().exchange.timeout, .deterministic = true})
      .wait();
}

void Layer::backward(std::span<const float> dy, std::span<float> dx) {
  Impl& l = *impl_;
  std::vector<float> dweight(l.gated.routing.weight.size());
  l.experts.backward(dy, {dx, dweight});
  std::ranges::fill(l.gate_gradients, 0.0f);
  l.gate->backward(
      l.input, l.gated,
      {.dweight = dweight, .statistics = l.sums, .dloss = 1.0 / l.experts.options().gradient_scale},
      {l.gate_gradients, dx});
}

void Layer::reduce_gradients() {
  Impl& l = *impl_;
  Request gate =
      l.comm->all_reduce(l.gate_gradients, ReduceOp::kSum,
                         {.timeout = l.experts.options().exchange.timeout, .deterministic = true});
  l.experts.reduce_gradients();
  gate.wait();
  for (float& g : l.gate_gradients) g *= l.experts.options().gradient_scale;
}

}  // namespace motley::moe
