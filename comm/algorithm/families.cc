#include "comm/algorithm/families.h"

#include <array>

#include "comm/algorithm/hosts.h"

namespace motley {
namespace {

std::vector<Algorithm> list_of(CallKind kind) {
  switch (kind) {
    case CallKind::kAllReduce:
      return {{"direct", direct_all_reduce},
              {"ring", ring_all_reduce},
              {"halving_doubling", halving_doubling_all_reduce},
              {"hierarchical", hierarchical_all_reduce, has_levels},
              {"hierarchical_ring", hierarchical_ring_all_reduce, has_levels},
              {"weighted", weighted_all_reduce, has_unequal_ports},
              {"leader", leader_all_reduce, has_levels}};
    case CallKind::kBroadcast:
      return {{"tree", tree_broadcast}};
    case CallKind::kAllToAll:
      return {{"direct", direct_all_to_all},
              {"pairwise", pairwise_all_to_all},
              {"bruck", bruck_all_to_all},
              {"two_level", two_level_all_to_all, has_levels},
              {"two_level_pipelined", two_level_pipelined_all_to_all, has_levels},
              {"leader", leader_all_to_all, has_levels}};
    case CallKind::kAllToAllV:
      return {{"direct", direct_all_to_all}, {"pairwise", pairwise_all_to_all}};
    case CallKind::kBarrier:
      return {{"dissemination", dissemination_barrier}};
    default:
      return {};
  }
}

}  // namespace

const std::vector<Algorithm>& algorithms_of(CallKind kind) {
  static const auto lists = [] {
    std::array<std::vector<Algorithm>, kCallKinds> all;
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = list_of(static_cast<CallKind>(i));
    return all;
  }();
  return lists[static_cast<std::size_t>(kind)];
}

}  // namespace motley
