// moe/sharded_experts.h: experts whose hidden width is shared by ranks, as the whole experts that a
// checkpoint has, so that any layout goes on from what any other has saved.
//
//   std::vector<runtime::State> here(layer.experts().size());  // of each shard: weights, moments
//   ShardedExperts experts(comm, layer.placement(), shape, {here, example});
//   experts.list(state, "layer.0.");                           // whole, as list_experts() does
//   experts.collect();   checkpoints.save(state, step);        // on all ranks
//   checkpoints.load(state);   experts.spread();
//
// What of a shard's items is [slot_count] float32, as the parameters are and all that an optimizer
// keeps for each of them, is a part of the whole expert's; everything else is alike in all shards.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "moe/checkpoint.h"
#include "moe/expert_compute.h"
#include "moe/placement.h"
#include "runtime/state.h"

namespace motley::moe {

// Of a rank's physical experts, in the order of Placement::of_rank(); all data must stay.
struct ShardStates {
  std::vector<runtime::State> here;
  runtime::State example;  // the items of a shard; ranks without experts need it too
};

class ShardedExperts {
 public:
  //   whole   of an expert, of which the placement's shards are equal parts
  //   errors  kInvalid where states are not one for each physical expert, or not of the example's
  //           names, shapes and types; where replicas have other numbers of shards than others
  ShardedExperts(Communicator& comm, const Placement& placement, const ExpertShape& whole,
                 ShardStates states);

  // As list_experts(): each logical expert of which this rank has a part with data, in memory of
  // this object where there are shards, else in that of the states.
  void list(runtime::State& state, const std::string& prefix) const;

  // Puts the whole experts together from the shards of their first replicas. A collective: every
  // rank calls it before it saves. Without shards there is nothing to do.
  //   cost  each shard goes to every rank that has another part of its expert
  void collect(Duration timeout = {});
  // Cuts what was loaded into the shards of this rank.
  void spread();

 private:
  // A logical expert of which this rank has a part.
  struct Whole {
    std::int32_t expert = 0;
    std::vector<std::size_t> slots;          // of this rank
    std::vector<std::vector<float>> values;  // of each item that is cut; empty without shards
    runtime::State items;
  };

  bool is_cut(const runtime::StateItem& item) const;
  void check(const ShardStates& states) const;
  bool holds(int rank, std::int32_t expert) const;
  std::vector<float> pack(std::vector<std::size_t>& counts) const;
  void unpack(std::span<const float> parts);
  // Calls body(physical) for the shards that `from` sends to `to`, in order.
  template <class Body>
  void each_sent(int from, int to, const Body& body) const;

  Communicator* comm_;
  Placement placement_;
  ExpertShape shape_, part_;
  ShardStates states_;
  runtime::State example_;  // of a whole expert, without data
  std::vector<Whole> wholes_;
  std::size_t cut_items_ = 0;
};

}  // namespace motley::moe
