#include "comm/algorithm/families.h"

#include <algorithm>
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
              {"weighted", weighted_all_reduce, suits_weighted},
              {"leader", leader_all_reduce, has_levels},
              {"tree", tree_all_reduce},
              {"ordered", ordered_all_reduce}};
    case CallKind::kReduceScatter:
      return {{"direct", direct_reduce_scatter},
              {"ring", ring_reduce_scatter},
              {"halving", halving_reduce_scatter},
              {"ordered", ordered_reduce_scatter}};
    case CallKind::kAllGather:
    case CallKind::kAllGatherV:
      return {{"direct", direct_all_gather},
              {"ring", ring_all_gather},
              {"doubling", doubling_all_gather}};
    case CallKind::kBroadcast:
      return {{"tree", tree_broadcast}, {"scatter_gather", scatter_gather_broadcast}};
    case CallKind::kReduce:
      return {{"tree", tree_reduce},
              {"scatter_gather", scatter_gather_reduce},
              {"ordered", ordered_reduce}};
    case CallKind::kGather:
      return {{"direct", direct_gather}, {"tree", tree_gather}};
    case CallKind::kScatter:
      return {{"direct", direct_scatter}, {"tree", tree_scatter}};
    case CallKind::kAllToAll:
      return {{"direct", direct_all_to_all},
              {"pairwise", pairwise_all_to_all},
              {"bruck", bruck_all_to_all},
              {"two_level", two_level_all_to_all, has_levels},
              {"two_level_pipelined", two_level_pipelined_all_to_all, has_levels},
              {"leader", leader_all_to_all, has_levels}};
    case CallKind::kAllToAllV:
      return {
          {"direct", direct_all_to_all},
          {"pairwise", pairwise_all_to_all},
          {"two_level", two_level_all_to_all, has_levels, direct_all_to_all},
          {"two_level_pipelined", two_level_pipelined_all_to_all, has_levels, direct_all_to_all},
          {"leader", leader_all_to_all, has_levels, direct_all_to_all}};
    case CallKind::kSendRecv:
      return {{"direct", direct_send_recv}};
    case CallKind::kBarrier:
      break;
  }
  return {{"dissemination", dissemination_barrier}};
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

int find_algorithm(CallKind kind, std::string_view wanted) noexcept {
  const std::vector<Algorithm>& algorithms = algorithms_of(kind);
  for (std::size_t i = 0; i < algorithms.size(); ++i) {
    if (wanted == algorithms[i].name) return static_cast<int>(i);
  }
  return -1;
}

std::vector<std::string_view> algorithm_names() {
  std::vector<std::string_view> names;
  for (int kind = 0; kind < kCallKinds; ++kind) {
    for (const Algorithm& family : algorithms_of(static_cast<CallKind>(kind))) {
      if (std::find(names.begin(), names.end(), family.name) == names.end())
        names.push_back(family.name);
    }
  }
  return names;
}

}  // namespace motley
