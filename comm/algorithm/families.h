// comm/algorithm/families.h: all families of schedules, by collective.
#pragma once

#include <string_view>
#include <vector>

#include "comm/algorithm/schedule.h"
#include "comm/call_kind.h"

namespace motley {

// The families of a collective; the position is what Fingerprint::algorithm carries.
const std::vector<Algorithm>& algorithms_of(CallKind kind);
// Index of the family called `wanted`, or -1.
int find_algorithm(CallKind kind, std::string_view wanted) noexcept;
// The names of all families of all collectives, each once.
std::vector<std::string_view> algorithm_names();

Schedule direct_all_reduce(const Shape& shape);
Schedule ring_all_reduce(const Shape& shape);
Schedule halving_doubling_all_reduce(const Shape& shape);
Schedule hierarchical_all_reduce(const Shape& shape);
Schedule hierarchical_ring_all_reduce(const Shape& shape);
Schedule weighted_all_reduce(const Shape& shape);
bool suits_weighted(const Shape& shape);
Schedule leader_all_reduce(const Shape& shape);
Schedule tree_all_reduce(const Shape& shape);
Schedule ordered_all_reduce(const Shape& shape);

Schedule direct_reduce_scatter(const Shape& shape);
Schedule ring_reduce_scatter(const Shape& shape);
Schedule halving_reduce_scatter(const Shape& shape);
Schedule ordered_reduce_scatter(const Shape& shape);

Schedule direct_all_gather(const Shape& shape);
Schedule ring_all_gather(const Shape& shape);
Schedule doubling_all_gather(const Shape& shape);

Schedule tree_broadcast(const Shape& shape);
Schedule scatter_gather_broadcast(const Shape& shape);

Schedule tree_reduce(const Shape& shape);
Schedule scatter_gather_reduce(const Shape& shape);
Schedule ordered_reduce(const Shape& shape);

Schedule direct_gather(const Shape& shape);
Schedule tree_gather(const Shape& shape);
Schedule direct_scatter(const Shape& shape);
Schedule tree_scatter(const Shape& shape);

Schedule direct_all_to_all(const Shape& shape);
Schedule pairwise_all_to_all(const Shape& shape);
Schedule bruck_all_to_all(const Shape& shape);
Schedule two_level_all_to_all(const Shape& shape);
Schedule two_level_pipelined_all_to_all(const Shape& shape);
Schedule leader_all_to_all(const Shape& shape);
Schedule direct_send_recv(const Shape& shape);
Schedule dissemination_barrier(const Shape& shape);

}  // namespace motley
