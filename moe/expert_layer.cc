#include "moe/expert_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "comm/error.h"
#include "comm/topology.h"
#include "moe/builder.h"
#include "moe/digest.h"
#include "moe/expert_shards.h"
#include "moe/layer/replica_sums.h"
#include "moe/rows.h"

namespace motley::moe {
namespace {

std::unique_ptr<ReplicaChooser> nearest(const Communicator& comm) {
  std::vector<int> host;
  for (int r = 0; r < comm.size(); ++r) host.push_back(comm.topology().host_of(r));
  return local_first_chooser(std::move(host));
}

// Throws unless every replica is cut as the others are.
void require_alike(const Placement& placement) {
  for (const PhysicalExpert& p : placement.physical()) {
    if (p.shards == placement.most_shards()) continue;
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("moe layer: replica {} of expert {} has {} shards, another {}. All must "
                    "have as many.",
                    p.replica, p.expert, p.shards, placement.most_shards()));
  }
}

std::vector<OutputBias> biases(std::span<const PhysicalExpert> experts) {
  std::vector<OutputBias> bias;
  for (const PhysicalExpert& p : experts) {
    bias.push_back(p.shard == 0 ? OutputBias::kAdded : OutputBias::kElsewhere);
  }
  return bias;
}

}  // namespace

struct ExpertLayer::Impl {
  Impl(Communicator& comm_, const Placement& placement_, const ExpertLayerOptions& options_,
       std::unique_ptr<ReplicaChooser> chooser_)
      : comm(&comm_),
        placement(placement_),
        options(options_),
        chooser(chooser_ ? std::move(chooser_) : nearest(comm_)),
        exchange(comm_, placement, options.exchange),
        workers(options.threads),
        shape(shard_of(options.shape, placement.most_shards())),
        compute(shape, workers, biases(placement.of_rank(comm_.rank())), options.products),
        replicas(placement, comm_.rank(), options.first_group),
        parameters(placement.of_rank(comm_.rank()).size() * shape.slot_count()),
        gradients(parameters.size()),
        builder({.lane = lane_of(comm_.topology()), .algorithm = exchange.algorithm()}),
        executor(comm_.clock(), comm_.rank(), options.lanes) {
    exchange.fill(options.fill);
    bind_forward();
    bind_backward();
    for (std::size_t i = 0; i < placement.of_rank(comm_.rank()).size(); ++i) {
      slots.push_back(slot(std::span<const float>(parameters), i));
      gradient_slots.push_back(slot(std::span(gradients), i));
    }
  }

  template <class Span>
  Span slot(Span all, std::size_t i) const {
    return all.subspan(i * shape.slot_count(), shape.slot_count());
  }
  // Of what all ranks must have alike, beside the exchange's options and the plan's agreement.
  std::uint64_t agreement() const {
    return Digest()
        .add(options.shape.width)
        .add(options.shape.hidden)
        .add(static_cast<int>(options.shape.activation))
        .add(static_cast<int>(options.shape.form))
        .add(static_cast<int>(options.products))
        .add(std::bit_cast<std::uint32_t>(options.gradient_scale))
        .add(options.first_group)
        .add(options.agreement)
        .value();
  }
  std::size_t width() const { return static_cast<std::size_t>(shape.width); }
  LayerShape costs() const {
    return {.width = shape.width,
            .hidden = shape.hidden,
            .matrices = shape.form == ExpertForm::kGated ? 3 : 2};
  }
  void bind_forward();
  void bind_backward();
  void run(Program made) {
    program = std::move(made);
    timeline = executor.run(program);
  }
  void make(const ExpertLayerInput& input, std::span<float> y);
  void check_backward(std::span<const float> dy_given, const ExpertLayerGradient& out) const;
  void locate_rows();
  // Sums over a token's choices of the rows that came back for them.
  WeightedRowSums sums(std::span<float> out, std::span<const float> in) const {
    return {.out = out,
            .in = in,
            .row = row,
            .terms = static_cast<std::size_t>(plan.top_k),
            .parts = static_cast<std::size_t>(plan.shards),
            .columns = width()};
  }

  Communicator* comm;
  Placement placement;
  ExpertLayerOptions options;
  std::unique_ptr<ReplicaChooser> chooser;
  Exchange exchange;
  Workers workers;
  ExpertShape shape;
  ExpertCompute compute;
  ReplicaSums replicas;
  std::vector<float> parameters, gradients;
  std::vector<std::span<const float>> slots;
  std::vector<std::span<float>> gradient_slots;
  TokenAllToAll builder;
  Executor executor;
  Program program;
  Timeline timeline;

  // Arguments of the call under way.
  std::span<const float> x_in, dy_in;
  std::span<float> y_out;
  ExpertLayerGradient gradient_out{};

  // Of the last forward.
  bool ready = false;  // it succeeded, and had no backward: that overwrites what it needs
  Routing routing;
  Plan plan;
  std::vector<std::int64_t> row;        // [tokens, top_k, shards], in what comes back
  std::span<const float> outputs_here;  // what came back
  Scratch x, y, dy, dx;                 // rows, in the order of computing
  ExpertSaved saved;
};

ExpertLayer::ExpertLayer(Communicator& comm, const Placement& placement,
                         const ExpertLayerOptions& options,
                         std::unique_ptr<ReplicaChooser> chooser) {
  require_alike(placement);
  if (!std::isfinite(options.gradient_scale) || options.gradient_scale == 0) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("moe layer: gradient_scale is {}. It must be finite and not 0.",
                            options.gradient_scale));
  }
  impl_ = std::make_unique<Impl>(comm, placement, options, std::move(chooser));
}
ExpertLayer::~ExpertLayer() = default;
ExpertLayer::ExpertLayer(ExpertLayer&&) noexcept = default;
ExpertLayer& ExpertLayer::operator=(ExpertLayer&&) noexcept = default;

const ExpertLayerOptions& ExpertLayer::options() const noexcept { return impl_->options; }
const Placement& ExpertLayer::placement() const noexcept { return impl_->placement; }
std::span<const PhysicalExpert> ExpertLayer::experts() const noexcept {
  return impl_->placement.of_rank(impl_->comm->rank());
}
const ExpertShape& ExpertLayer::shard_shape() const noexcept { return impl_->shape; }
std::span<float> ExpertLayer::parameters() noexcept { return impl_->parameters; }
std::span<const float> ExpertLayer::parameters() const noexcept { return impl_->parameters; }
std::span<float> ExpertLayer::gradients() noexcept { return impl_->gradients; }
const Plan& ExpertLayer::plan() const noexcept { return impl_->plan; }
const Program& ExpertLayer::program() const noexcept { return impl_->program; }
const Timeline& ExpertLayer::timeline() const noexcept { return impl_->timeline; }
const ExchangeCounters& ExpertLayer::counters() const noexcept {
  return impl_->exchange.counters();
}

void ExpertLayer::load(std::int32_t expert, std::span<const float> slot) {
  if (expert < 0 || expert >= placement().experts() ||
      slot.size() != options().shape.slot_count()) {
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("moe layer: {} numbers of expert {}, but there are {} experts of {}. "
                    "Pass the whole slot of one of them.",
                    slot.size(), expert, placement().experts(), options().shape.slot_count()));
  }
  for (std::size_t i = 0; i < experts().size(); ++i) {
    const PhysicalExpert& mine = experts()[i];
    if (mine.expert != expert) continue;
    cut_shard(impl_->options.shape, {mine.shard, mine.shards}, slot, impl_->slot(parameters(), i));
  }
}

// The plan of this rank. Throws what is wrong here.
void ExpertLayer::Impl::make(const ExpertLayerInput& input, std::span<float> out) {
  if (input.x.size() != input.routing.tokens * width() || out.size() != input.x.size()) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("moe layer: x has {} numbers and y {}, for {} tokens of {}. Each must "
                            "have tokens times width.",
                            input.x.size(), out.size(), input.routing.tokens, width()));
  }
  plan = make_plan({.routing = input.routing,
                    .placement = placement,
                    .capacity = options.capacity,
                    .chooser = *chooser,
                    .rank = comm->rank(),
                    .most_tokens = options.exchange.most_tokens,
                    .step = input.step});
  routing = input.routing;
}

// Where each choice's rows stand in what comes back.
void ExpertLayer::Impl::locate_rows() {
  row.clear();
  for (const std::int64_t r : plan.row) {
    row.push_back(r < 0 ? r : exchange.place()[static_cast<std::size_t>(r)]);
  }
}

void ExpertLayer::forward(const ExpertLayerInput& input, std::span<float> y) {
  Impl& l = *impl_;
  std::exception_ptr error;
  try {
    l.make(input, y);
  } catch (...) {
    error = std::current_exception();  // the others must hear of it
  }
  l.ready = false;
  l.exchange.begin({error ? nullptr : &l.plan, input.routing.tokens, error, l.agreement()});
  l.locate_rows();

  const std::size_t numbers = l.exchange.computed_rows() * l.width();
  l.x.resize(numbers, l.options.fill);
  l.y.resize(numbers, l.options.fill);
  l.compute.reserve(l.saved, l.exchange.computed_rows(), l.options.fill);
  l.x_in = input.x;
  l.y_out = y;
  l.run(l.builder.forward(l.costs(), l.exchange.rows()));
  l.ready = true;
}

void ExpertLayer::Impl::bind_forward() {
  executor.bind(OpKind::kEncode, [this](const Op& op, int) {
    exchange.pack_dispatch(op.chunk, {.rows = x_in, .columns = width()}, workers);
  });
  executor.bind_call(OpKind::kDispatch,
                     [this](const Op& op, int) { return exchange.dispatch(op.chunk); });
  executor.bind(OpKind::kExperts, [this](const Op& op, int) {
    exchange.unpack_dispatch(op.chunk, x.span(), workers);
    compute.forward({slots, exchange.segments(op.chunk), x.span(), y.span()}, saved);
    exchange.pack_combine(op.chunk, y.span(), workers);
  });
  executor.bind_call(OpKind::kCombine,
                     [this](const Op& op, int) { return exchange.combine(op.chunk); });
  executor.bind(OpKind::kDecode, [this](const Op&, int) {
    outputs_here = exchange.combined();
    WeightedRowSums weighted = sums(y_out, outputs_here);
    weighted.weight = plan.weight;
    decode_rows(weighted, workers);
  });
}

void ExpertLayer::refuse(std::exception_ptr error, std::size_t tokens) {
  impl_->ready = false;
  impl_->exchange.begin({nullptr, tokens, error, impl_->agreement()});
  std::rethrow_exception(error);  // begin() has
}

void ExpertLayer::backward(std::span<const float> dy, const ExpertLayerGradient& out) {
  Impl& l = *impl_;
  l.check_backward(dy, out);
  l.ready = false;
  const std::size_t numbers = l.exchange.computed_rows() * l.width();
  l.dy.resize(numbers, l.options.fill);
  l.dx.resize(numbers, l.options.fill);
  l.dy_in = dy;
  l.gradient_out = out;
  l.run(l.builder.backward(l.costs(), l.exchange.rows()));
}

void ExpertLayer::Impl::check_backward(std::span<const float> dy_given,
                                       const ExpertLayerGradient& out) const {
  if (!ready) {
    throw Error(ErrorCode::kInvalid,
                "moe layer: backward without a forward that succeeded, or a second one after it. "
                "Call forward before each.");
  }
  const std::size_t numbers = plan.tokens * width();
  if (dy_given.size() == numbers && out.dx.size() == numbers &&
      out.dweight.size() == plan.weight.size()) {
    return;
  }
  throw Error(ErrorCode::kInvalid,
              fmt::format("moe layer: dy has {} numbers, dx {} and dweight {}, but forward had {} "
                          "tokens of {} and {} choices each. Pass arrays of those sizes.",
                          dy_given.size(), out.dx.size(), out.dweight.size(), plan.tokens, width(),
                          plan.top_k));
}

void ExpertLayer::Impl::bind_backward() {
  executor.bind(OpKind::kEncodeGradient, [this](const Op& op, int) {
    exchange.pack_dispatch(op.chunk, {dy_in, plan.weight, width()}, workers);
  });
  executor.bind(OpKind::kWeightsGradient, [this](const Op&, int) {
    std::vector<float> dweight(plan.weight.size());
    decode_weight_gradient({.out = dweight,
                            .by = dy_in,
                            .in = outputs_here,
                            .row = row,
                            .terms = static_cast<std::size_t>(plan.top_k),
                            .parts = static_cast<std::size_t>(plan.shards),
                            .columns = width()},
                           workers);
    std::ranges::copy(weight_gradient(plan, routing, dweight), gradient_out.dweight.begin());
  });
  executor.bind(OpKind::kExpertsGradient, [this](const Op& op, int) {
    exchange.unpack_dispatch(op.chunk, dy.span(), workers);
    compute.backward_rows({slots, exchange.segments(op.chunk), dy.span(), dx.span()}, saved);
    exchange.pack_combine(op.chunk, dx.span(), workers);
  });
  executor.bind(OpKind::kParametersGradient, [this](const Op&, int) {
    std::vector<ExpertSegment> segments;
    for (int c = 0; c < exchange.chunks(); ++c) {
      const std::span<const ExpertSegment> chunk = exchange.segments(c);
      segments.insert(segments.end(), chunk.begin(), chunk.end());
    }
    compute.backward_weights({segments, x.span(), dy.span(), gradient_slots}, saved);
    if (options.gradient_scale == 1) return;
    for (float& g : gradients) g *= options.gradient_scale;
  });
  executor.bind(OpKind::kDecodeGradient, [this](const Op&, int) {
    decode_rows(sums(gradient_out.dx, exchange.combined()), workers);
  });
}

void ExpertLayer::reduce_gradients() {
  impl_->replicas.add_up(*impl_->comm, impl_->gradient_slots, impl_->options.exchange.timeout);
}

}  // namespace motley::moe
