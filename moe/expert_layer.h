// moe/expert_layer.h: a mixture-of-experts layer over the ranks of a communicator, but for its
// gate: plan, dispatch, experts, combine, forward and backward. layer.h puts a gate before it.
//
//   const auto placement = Placement::grid({.experts = 8, .ranks = comm.size()});
//   ExpertLayer layer(comm, placement, {.shape = {.width = 64, .hidden = 256}});
//   layer.load(e, parameters_of_expert);                       // each rank takes what it holds
//   layer.forward({.x = x, .routing = routing}, y);            // x, y [tokens, 64]
//   layer.backward(dy, {.dx = dx, .dweight = dweight});
//   layer.reduce_gradients();                                  // over the replicas
//
// Expert parallelism, data parallelism (replicas) and shards of the hidden width are a matter of
// the placement. Every rank calls the same in the same order, with as many tokens as it has, none
// too; no collective depends on the routing. Gradients are those of the sum of what all ranks' dy
// are gradients of, times gradient_scale: where each rank's loss is a mean over its tokens and the
// objective the mean over ranks, that is 1 / ranks, for experts as for every other parameter.
// Outputs and gradients have the same bits every time, for every exchange, degree and number of
// threads.
//
// forward and backward are programs (program.h), made of what the ranks' plans are and run by an
// Executor: what simulate() (simulator.h) tells of them is told of what is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>

#include "comm/communicator.h"
#include "moe/capacity.h"
#include "moe/exchange.h"
#include "moe/executor.h"
#include "moe/expert_compute.h"
#include "moe/placement.h"
#include "moe/plan.h"
#include "moe/program.h"
#include "moe/replica_chooser.h"
#include "moe/routing.h"
#include "moe/timeline.h"

namespace motley::moe {

struct ExpertLayerOptions {
  ExpertShape shape{};  // of a whole expert
  CapacityRule capacity{};
  ExchangeOptions exchange{};
  Products products = Products::kFastest;    // kOwn: a token's bits never depend on other tokens
  int threads = 1;                           // of this rank, that compute
  LaneThreads lanes = LaneThreads::kPosted;  // what runs calls while others compute
  float gradient_scale = 1;                  // of the experts' gradients
  // Ids of groups of replicas from here on: another range for each layer of a communicator, which
  // must be given where there are replicas.
  std::uint64_t first_group = 0;
  std::uint64_t agreement = 0;  // a digest of what else all ranks must have alike, such as a gate
  Fill fill = Fill::kAsItWas;   // of all buffers before they are written
};

struct ExpertLayerInput {
  std::span<const float> x;  // [tokens, width]
  const Routing& routing;    // of those tokens, over the placement's experts
  std::int64_t step = 0;     // for DropOrder::kSeed; the same on all ranks
};

// What backward overwrites.
struct ExpertLayerGradient {
  std::span<float> dx;       // [tokens, width], through the experts; the gate adds its own
  std::span<float> dweight;  // [tokens, top_k], by routing.weight
};

class ExpertLayer {
 public:
  //   chooser  of replicas; null: local first, where a group is the ranks of a host
  //   errors   kInvalid as Exchange and ExpertCompute; if replicas have different numbers of
  //            shards, or first_group is not given
  ExpertLayer(Communicator& comm, const Placement& placement, const ExpertLayerOptions& options,
              std::unique_ptr<ReplicaChooser> chooser = nullptr);
  ~ExpertLayer();
  ExpertLayer(ExpertLayer&&) noexcept;
  ExpertLayer& operator=(ExpertLayer&&) noexcept;

  const ExpertLayerOptions& options() const noexcept;
  const Placement& placement() const noexcept;
  // The experts of this rank, or their shards, in the order of the slots below.
  std::span<const PhysicalExpert> experts() const noexcept;
  const ExpertShape& shard_shape() const noexcept;

  // [experts().size() * shard_shape().slot_count()], slot after slot.
  std::span<float> parameters() noexcept;
  std::span<const float> parameters() const noexcept;
  std::span<float> gradients() noexcept;
  // Copies what this rank holds of the logical expert, `slot` of options().shape, into its slots.
  //   errors  kInvalid for another number of numbers, and an expert that the placement has not
  void load(std::int32_t expert, std::span<const float> slot);

  //   errors  on all ranks: kInvalid where a rank's tokens, routing or rows are out of bounds;
  //           kMismatch; kTimeout; kPeerLost
  void forward(const ExpertLayerInput& input, std::span<float> y);
  // In place of forward on a rank that cannot: throws `error` here, and one that names this rank on
  // those that call forward.
  [[noreturn]] void refuse(std::exception_ptr error, std::size_t tokens);
  // Of the last forward, once, since which no parameter changed; overwrites the gradients of this
  // rank's slots with the sums over the tokens that came here.
  //   errors  kInvalid, on this rank and before any call, for other sizes than forward's, and where
  //           the last forward did not succeed or has had its backward; those of comm's calls
  void backward(std::span<const float> dy, const ExpertLayerGradient& out);
  // Adds up the gradients of the replicas of each expert, wherever they are, several on one rank
  // too: the same bits in all of them. Call it once after a backward, on every rank.
  void reduce_gradients();

  const Plan& plan() const noexcept;  // of the last forward
  // Of the last forward or backward.
  const Program& program() const noexcept;
  const Timeline& timeline() const noexcept;
  const ExchangeCounters& counters() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace motley::moe
