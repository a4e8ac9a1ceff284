// moe/layer/replica_sums.h: sums over all replicas of each expert, or of each shard of one,
// wherever they lie: several on one rank, or on several.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "moe/placement.h"

namespace motley::moe {

class ReplicaSums {
 public:
  //   first_group  the id of the first group of ranks that is made
  //   errors       kInvalid if that is 0, but replicas lie on several ranks
  ReplicaSums(const Placement& placement, int rank, std::uint64_t first_group);

  // Each of `slots`, this rank's in order of the placement, becomes the sum over its replicas, with
  // the same bits in all. Every rank calls it.
  void add_up(Communicator& comm, std::span<const std::span<float>> slots, Duration timeout) const;

 private:
  // What lies on the same ranks.
  struct Twins {
    std::optional<Group> group;                   // of those ranks, if they are several
    std::vector<std::vector<std::size_t>> slots;  // of this rank, by what they hold: one or more
  };

  std::vector<Twins> twins_;
};

}  // namespace motley::moe
