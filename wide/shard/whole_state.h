// wide/shard/whole_state.h: moves whole shards: to who begins to keep one, and to a file.
#pragma once

#include <span>
#include <vector>

#include "comm/communicator.h"
#include "wide/shard/hot_block.h"
#include "wide/shard/shards.h"

namespace motley::wide {

// All members of `group` call it. Gives the state of the whole model, as Layout has it, part by
// part to `put` on the first member.
void collect_state(Communicator& comm, const Group& group, const ShardMap& map,
                   const Layout& layout, const Shards& shards, const HotBlock& hot,
                   const Model::PutFloats& put);

// All members call it. Who is a keeper of a shard and lacks it gets it from the first keeper that
// has it, with what is remembered, if anything is; so do those that have it, where copies may lag
// behind. Throws kPeerLost, on all, where nobody has it.
enum class Remembered : std::uint8_t { kNothing, kStates };
enum class Copies : std::uint8_t { kOfOneStep, kMayLag };
struct HandOver {
  Remembered remembered;
  Copies copies;
};
void hand_over(Communicator& comm, const Group& group, const ShardMap& map, Shards& shards,
               const HandOver& how);

}  // namespace motley::wide
