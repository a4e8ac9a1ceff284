// moe/replica_chooser.h: which replica of an expert gets which of a rank's tokens. A chooser is a
// pure function, so that any rank can work out another's plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "moe/placement.h"

namespace motley::moe {

// The choices of one logical expert by one rank's tokens that will be served.
struct ReplicaQuery {
  const Placement& placement;
  std::int32_t expert = 0;
  std::span<const int> live;  // its live replicas, ascending, at least one
  int rank = 0;               // whose tokens they are
};

class ReplicaChooser {
 public:
  virtual ~ReplicaChooser() = default;
  // Overwrites replica[i], for the i-th of the choices in order of position, with one of
  // query.live.
  virtual void choose(const ReplicaQuery& query, std::span<int> replica) const = 0;
  // Of kind and settings: equal on ranks that agree.
  virtual std::uint64_t digest() const noexcept = 0;
};

// The replica nearest to the tokens: with a shard on their rank; else with one on a rank of their
// group (a host, or a data-parallel copy); else any. Choices are spread evenly over equally near
// ones.
//   group  [ranks], the group of each; empty: each rank is its own
std::unique_ptr<ReplicaChooser> local_first_chooser(std::vector<int> group = {});

// Round robin over all, beginning at the tokens' rank modulo their number, so that ranks with few
// tokens do not all send them to the first. FlexMoE's even split over vExperts.
std::unique_ptr<ReplicaChooser> even_split_chooser();

// Replica i of expert e gets a share of weight[e][i] over the sum of its live replicas' weights:
// the next choice always goes to the one that is furthest below its share. For solvers of shares.
//   weight  [experts][replicas], finite, at least 0; all 0 among the live: shares are even
std::unique_ptr<ReplicaChooser> weighted_chooser(std::vector<std::vector<double>> weight);

}  // namespace motley::moe
