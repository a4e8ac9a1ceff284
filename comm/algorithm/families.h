// comm/algorithm/families.h: all families of schedules, by collective.
#pragma once

#include <vector>

#include "comm/algorithm/schedule.h"
#include "comm/call_kind.h"

namespace motley {

// The families of a collective; the position is what Fingerprint::algorithm carries.
const std::vector<Algorithm>& algorithms_of(CallKind kind);

Schedule direct_all_reduce(const Shape& shape);
Schedule ring_all_reduce(const Shape& shape);
Schedule halving_doubling_all_reduce(const Shape& shape);
Schedule hierarchical_all_reduce(const Shape& shape);
Schedule hierarchical_ring_all_reduce(const Shape& shape);
Schedule weighted_all_reduce(const Shape& shape);
bool has_unequal_ports(const Shape& shape);
Schedule leader_all_reduce(const Shape& shape);
Schedule tree_broadcast(const Shape& shape);
Schedule direct_all_to_all(const Shape& shape);
Schedule pairwise_all_to_all(const Shape& shape);
Schedule bruck_all_to_all(const Shape& shape);
Schedule two_level_all_to_all(const Shape& shape);
Schedule two_level_pipelined_all_to_all(const Shape& shape);
Schedule leader_all_to_all(const Shape& shape);
Schedule dissemination_barrier(const Shape& shape);

}  // namespace motley
