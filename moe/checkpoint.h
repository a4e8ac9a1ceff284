// moe/checkpoint.h: how experts are listed in a State (runtime/state.h), so that a checkpoint that
// was saved with one number of expert-parallel ranks is loaded with another.
//
//   std::vector<ExpertState> here;               // of each expert on this rank: weights, moments
//   list_experts(state, {"layer.0.", 8, example}, here);
//   checkpoints.save(state, step);               // runtime/checkpoint.h
//
// An expert is named by its logical number, whoever has it, and all that is its own goes with it.
// Each is saved once, by the first rank that has it, and loaded by every rank that has it then.
// Experts of which ranks have but shards are put together first: sharded_experts.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/state.h"

namespace motley::moe {

// Of an expert that is here, with its data.
struct ExpertState {
  std::int32_t expert = 0;  // logical
  runtime::State items;     // names are the same for each expert: "weights", "adam.mean", …
};

struct ExpertListing {
  std::string prefix;             // of the names, before "expert.3."
  int experts = 0;                // logical, of all ranks
  const runtime::State& example;  // the items of an expert; ranks without experts need it too
};

// Whether both lists have the same names, shapes and types.
bool alike(const runtime::State& a, const runtime::State& b);

// Adds all items of all experts, kOwned, those that are not here without data.
//   errors  kInvalid for an expert that is not in [0, experts) or is here twice, and for items
//           that are not the example's
void list_experts(runtime::State& state, const ExpertListing& listing,
                  std::span<const ExpertState> here);

}  // namespace motley::moe
