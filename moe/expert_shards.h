// moe/expert_shards.h: an expert's parameters, whole and as shards of its hidden width, all as
// ExpertShape::slot_count() lays them: w1, b1, w2, b2, and if gated w3, b3.
#pragma once

#include <span>

#include "moe/expert_compute.h"

namespace motley::moe {

struct ExpertShard {
  int shard = 0;
  int shards = 1;  // that `hidden` of the whole is a multiple of
};

// Of one of the shards.
ExpertShape shard_of(ExpertShape whole, int shards);

// The shard's slot out of the whole one. b2 is in shard 0; in the others there are zeros.
void cut_shard(const ExpertShape& whole, ExpertShard at, std::span<const float> slot,
               std::span<float> out);
// The other way: writes the shard's part of the whole slot, b2 from shard 0 alone.
void paste_shard(const ExpertShape& whole, ExpertShard at, std::span<const float> shard,
                 std::span<float> slot);

}  // namespace motley::moe
