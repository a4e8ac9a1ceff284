#include "moe/expert_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "comm/error.h"
#include "comm/topology.h"
#include "moe/digest.h"
#include "moe/expert_shards.h"
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

// Slots that hold the same on other ranks, with those ranks.
struct Twins {
  Group group;
  std::vector<std::size_t> slots;  // of this rank, in the order of experts
};

// The ranks that hold `shard` of `expert`, by replica.
std::vector<int> holders(const Placement& placement, std::int32_t expert, int shard) {
  std::vector<int> ranks;
  for (int r = 0; r < placement.replicas(expert); ++r) {
    const auto number = placement.replica(expert, r)[static_cast<std::size_t>(shard)];
    const int rank = placement.physical()[static_cast<std::size_t>(number)].rank;
    if (std::ranges::find(ranks, rank) != ranks.end()) {
      throw Error(
          ErrorCode::kInvalid,
          fmt::format("moe layer: rank {} holds two replicas of expert {}. It can hold one.", rank,
                      expert));
    }
    ranks.push_back(rank);
  }
  return ranks;
}

// Every set of ranks has the same number on all ranks, whether they are in it or not.
std::vector<Twins> twins_of(const Placement& placement, int rank, std::uint64_t first_group) {
  std::map<std::vector<int>, std::uint64_t> number;
  std::map<std::uint64_t, Twins> mine;
  const std::span<const PhysicalExpert> own = placement.of_rank(rank);
  for (std::int32_t e = 0; e < placement.experts(); ++e) {
    for (int shard = 0; shard < placement.most_shards(); ++shard) {
      const std::vector<int> ranks = holders(placement, e, shard);
      if (ranks.size() == 1) continue;
      const std::uint64_t id = number.try_emplace(ranks, number.size()).first->second;
      for (std::size_t slot = 0; slot < own.size(); ++slot) {
        if (own[slot].expert != e || own[slot].shard != shard) continue;
        mine.try_emplace(id, Twins{Group(ranks, {.id = first_group + id}), {}})
            .first->second.slots.push_back(slot);
      }
    }
  }
  if (!number.empty() && first_group == 0) {
    throw Error(ErrorCode::kInvalid,
                "moe layer: first_group is 0, but experts have replicas. Give each layer of a "
                "communicator ids of its own.");
  }
  std::vector<Twins> all;
  for (auto& [id, twins] : mine) all.push_back(std::move(twins));
  return all;
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
        compute(shape, workers, biases(placement.of_rank(comm_.rank()))),
        twins(twins_of(placement, comm_.rank(), options.first_group)),
        parameters(placement.of_rank(comm_.rank()).size() * shape.slot_count()),
        gradients(parameters.size()) {
    exchange.fill(options.fill);
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
        .add(std::bit_cast<std::uint32_t>(options.gradient_scale))
        .add(options.first_group)
        .value();
  }
  std::size_t width() const { return static_cast<std::size_t>(shape.width); }
  void make(const ExpertLayerInput& input, std::span<float> y);
  void locate_rows();
  RowDecoding decoding(std::span<float> out, std::span<const float> in) const {
    return {.out = out,
            .in = in,
            .row = row,
            .terms = static_cast<std::size_t>(plan.top_k),
            .shards = static_cast<std::size_t>(plan.shards),
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
  std::vector<Twins> twins;
  std::vector<float> parameters, gradients;
  std::vector<std::span<const float>> slots;
  std::vector<std::span<float>> gradient_slots;

  // Of the last forward.
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
const ExchangeCounters& ExpertLayer::counters() const noexcept {
  return impl_->exchange.counters();
}

void ExpertLayer::load(std::int32_t expert, std::span<const float> slot) {
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
  l.exchange.begin({error ? nullptr : &l.plan, input.routing.tokens, error, l.agreement()});
  l.locate_rows();

  const std::size_t numbers = l.exchange.computed_rows() * l.width();
  l.x.resize(numbers, l.options.fill);
  l.y.resize(numbers, l.options.fill);
  l.compute.reserve(l.saved, l.exchange.computed_rows(), l.options.fill);
  for (int c = 0; c < l.exchange.chunks(); ++c) {
    l.exchange.post_dispatch(c, {.rows = input.x, .columns = l.width()}, l.workers);
  }
  for (int c = 0; c < l.exchange.chunks(); ++c) {
    l.exchange.await_dispatch(c, l.x.span(), l.workers);
    l.compute.forward({l.slots, l.exchange.segments(c), l.x.span(), l.y.span()}, l.saved);
    l.exchange.post_combine(c, l.y.span(), l.workers);
  }
  l.outputs_here = l.exchange.await_combine();
  RowDecoding decoding = l.decoding(y, l.outputs_here);
  decoding.weight = l.plan.weight;
  decode_rows(decoding, l.workers);
}

void ExpertLayer::refuse(std::exception_ptr error, std::size_t tokens) {
  impl_->exchange.begin({nullptr, tokens, error, impl_->agreement()});
  std::rethrow_exception(error);  // begin() has
}

void ExpertLayer::backward(std::span<const float> dy, const ExpertLayerGradient& out) {
  Impl& l = *impl_;
  std::vector<float> dweight(l.plan.weight.size());
  decode_weight_gradient(l.decoding({}, l.outputs_here), dy, dweight, l.workers);
  std::ranges::copy(weight_gradient(l.plan, l.routing, dweight), out.dweight.begin());

  const std::size_t numbers = l.exchange.computed_rows() * l.width();
  l.dy.resize(numbers, l.options.fill);
  l.dx.resize(numbers, l.options.fill);
  std::vector<ExpertSegment> segments;
  for (int c = 0; c < l.exchange.chunks(); ++c) {
    l.exchange.post_dispatch(c, {dy, l.plan.weight, l.width()}, l.workers);
  }
  for (int c = 0; c < l.exchange.chunks(); ++c) {
    const std::span<const ExpertSegment> chunk = l.exchange.segments(c);
    segments.insert(segments.end(), chunk.begin(), chunk.end());
    l.exchange.await_dispatch(c, l.dy.span(), l.workers);
    l.compute.backward_rows({l.slots, chunk, l.dy.span(), l.dx.span()}, l.saved);
    l.exchange.post_combine(c, l.dx.span(), l.workers);
  }
  l.compute.backward_weights({segments, l.x.span(), l.dy.span(), l.gradient_slots}, l.saved);
  if (l.options.gradient_scale != 1) {
    for (float& g : l.gradients) g *= l.options.gradient_scale;
  }
  const std::span<const float> back = l.exchange.await_combine();
  decode_rows(l.decoding(out.dx, back), l.workers);
}

void ExpertLayer::reduce_gradients() {
  Impl& l = *impl_;
  std::vector<std::vector<float>> sums;
  for (const Twins& twins : l.twins) {
    std::vector<float>& sum = sums.emplace_back();
    for (const std::size_t i : twins.slots) {
      const std::span<const float> slot = l.gradient_slots[i];
      sum.insert(sum.end(), slot.begin(), slot.end());
    }
  }
  std::vector<Request> requests;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    requests.push_back(l.comm->all_reduce(sums[i], ReduceOp::kSum,
                                          {.group = &l.twins[i].group,
                                           .timeout = l.options.exchange.timeout,
                                           .deterministic = true}));
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    requests[i].wait();
    auto from = sums[i].begin();
    for (const std::size_t slot : l.twins[i].slots) {
      std::copy_n(from, l.shape.slot_count(), l.gradient_slots[slot].begin());
      from += static_cast<std::ptrdiff_t>(l.shape.slot_count());
    }
  }
}

}  // namespace motley::moe
