// moe/plan.h: which row of which rank's buffer every choice of a routing becomes: all that
// dispatch, combine, their backward and a recomputation need. A pure function, made once per step.
//
//   Plan plan = make_plan({.routing = gated.routing, .placement = placement, .capacity = rule,
//                          .chooser = *chooser, .rank = comm.rank()});
//   plan.send_count …  // exchange the counts; then rows; compute; rows back; sum by plan.weight
//
// Order of the rows that a rank sends: destination rank, physical expert, token. Order of the rows
// that it computes on: physical expert, source rank, token. So no result depends on what arrives
// when. Dispatch and combine are transposes: backward takes the same plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "moe/capacity.h"
#include "moe/placement.h"
#include "moe/replica_chooser.h"
#include "moe/routing.h"

namespace motley::moe {

struct PlanInput {
  const Routing& routing;
  const Placement& placement;
  CapacityRule capacity;
  const ReplicaChooser& chooser;
  int rank = 0;                 // whose tokens they are
  std::size_t most_tokens = 0;  // of any rank, so that all have one capacity; 0: this rank's
  std::int64_t step = 0;        // of the training, for DropOrder::kSeed
};

// What became of a choice.
enum class Fate : std::uint8_t {
  kServed,
  kNone,          // there was none: kNoExpert
  kOverCapacity,  // its expert was full
  kUnreachable,   // no replica of its expert lives
};

struct Plan {
  std::uint64_t epoch = 0;  // of the placement
  int rank = 0;
  std::size_t tokens = 0;
  int top_k = 0;
  int shards = 1;                                       // most shards of a replica
  std::int64_t capacity = 0;                            // of an expert for this rank's tokens
  Renormalize renormalize = Renormalize::kUnreachable;  // what was done to the weights

  std::vector<Fate> fate;              // [tokens, top_k]
  std::vector<float> weight;           // [tokens, top_k] for combine; 0 where not served
  std::vector<std::int32_t> physical;  // [tokens, top_k, shards], who computes it; -1: nobody
  std::vector<std::int64_t> row;       // [tokens, top_k, shards], in the send buffer; -1: none

  std::vector<std::int64_t> send_count;  // [physical experts], rows for each
  std::vector<std::int64_t> send_first;  // [physical experts + 1], where they start
  std::vector<std::int64_t> choice;      // [rows], t * top_k + j of the choice that a row is of

  std::int64_t over_capacity = 0;  // choices of that fate
  std::int64_t unreachable = 0;
  std::int64_t rerouted = 0;  // served choices of experts of which some replica is dead

  std::uint64_t digest = 0;     // of the whole plan: equal plans have equal ones
  std::uint64_t agreement = 0;  // of placement, chooser, rule, top_k and step: equal on all ranks

  std::int64_t rows() const noexcept { return static_cast<std::int64_t>(choice.size()); }
};

// Throws kInvalid on a bad routing or rule, on a rank that is not in the placement or dead, if the
// routing has other experts than the placement, or more tokens than most_tokens.
//   cost  O(tokens * top_k * log(tokens)) and the size of the placement
Plan make_plan(const PlanInput& input);

// The gradient by routing.weight [tokens, top_k] from that by plan.weight: through the weights that
// lost choices left to others. Those of choices that are not served are 0 but for that.
std::vector<float> weight_gradient(const Plan& plan, const Routing& routing,
                                   std::span<const float> dweight);

// Where rows that arrive at a rank stand among those that it computes on.
struct ReceivePlan {
  std::int64_t rows = 0;
  std::vector<std::int64_t> segment;  // [mine + 1], the first row of each of its physical experts
  std::vector<std::int64_t> first;    // [ranks, mine], where the rows from a rank for one start
};

// From what every rank sends to each of this one's physical experts, [ranks, mine], by slot. Throws
// kInvalid if that is not whole ranks or a count is negative.
ReceivePlan make_receive_plan(std::span<const std::int64_t> counts, int ranks);

}  // namespace motley::moe
