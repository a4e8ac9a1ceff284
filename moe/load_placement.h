// moe/load_placement.h: which experts to replicate, and where, from how many tokens each gets.
//
//   std::vector<std::int32_t> slots = replicate_by_load(
//       {.load = loads, .slots = 16, .groups = 4, .hosts = 2, .ranks = 8});
//   Placement next(layout_of(slots, {.experts = 12, .ranks = 8, .epoch = placement.epoch() + 1}));
//
// DeepSeek's balancer for experts (EPLB): groups of experts are packed onto hosts, on each host the
// experts with most tokens per replica get one more until the slots are used, and the replicas are
// packed onto the host's ranks. Packing gives the heaviest first to the lightest that has room. If
// the groups do not divide among the hosts, all hosts are one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "moe/placement.h"

namespace motley::moe {

struct ReplicationCase {
  std::span<const double> load;  // [experts], tokens of each, finite, at least 0
  int slots = 0;                 // of all ranks: a multiple of ranks, at least experts
  int groups = 1;                // of equally many experts, kept on one host
  int hosts = 1;                 // of equally many ranks
  int ranks = 1;
};

// The expert of every slot, rank by rank. Equal loads by index. Throws kInvalid, with the numbers,
// if something does not divide or a load is no number.
std::vector<std::int32_t> replicate_by_load(const ReplicationCase& input);

struct SlotCase {
  int experts = 0;
  int ranks = 1;
  std::uint64_t epoch = 0;
};

// The layout with those experts in the slots, [ranks, slots of a rank]; replicas count up by slot.
PlacementLayout layout_of(std::span<const std::int32_t> slots, const SlotCase& sizes);

}  // namespace motley::moe
