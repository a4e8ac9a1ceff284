#include "moe/layer/replica_sums.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "comm/error.h"

namespace motley::moe {
namespace {

// The ranks that hold `shard` of `expert`, ascending, each once.
std::vector<int> holders(const Placement& placement, std::int32_t expert, int shard) {
  std::set<int> ranks;
  for (int r = 0; r < placement.replicas(expert); ++r) {
    const auto number = placement.replica(expert, r)[static_cast<std::size_t>(shard)];
    ranks.insert(placement.physical()[static_cast<std::size_t>(number)].rank);
  }
  return {ranks.begin(), ranks.end()};
}

// Those of this rank that hold `shard` of `expert`.
std::vector<std::size_t> slots_of(std::span<const PhysicalExpert> own, std::int32_t expert,
                                  int shard) {
  std::vector<std::size_t> slots;
  for (std::size_t slot = 0; slot < own.size(); ++slot) {
    if (own[slot].expert == expert && own[slot].shard == shard) slots.push_back(slot);
  }
  return slots;
}

}  // namespace

ReplicaSums::ReplicaSums(const Placement& placement, int rank, std::uint64_t first_group) {
  // Every set of ranks has the same number on all ranks, whether they are in it or not.
  std::map<std::vector<int>, std::uint64_t> number;
  std::map<std::vector<int>, Twins> mine;
  for (std::int32_t e = 0; e < placement.experts(); ++e) {
    if (placement.replicas(e) == 1) continue;
    for (int shard = 0; shard < placement.most_shards(); ++shard) {
      const std::vector<int> ranks = holders(placement, e, shard);
      std::optional<Group> group;
      if (ranks.size() > 1) {
        const std::uint64_t id = number.try_emplace(ranks, number.size()).first->second;
        group.emplace(ranks, GroupTag{.id = first_group + id});
      }
      auto slots = slots_of(placement.of_rank(rank), e, shard);
      if (slots.empty()) continue;
      mine.try_emplace(ranks, Twins{std::move(group), {}})
          .first->second.slots.push_back(std::move(slots));
    }
  }
  if (!number.empty() && first_group == 0) {
    throw Error(ErrorCode::kInvalid,
                "moe layer: first_group is 0, but experts have replicas. Give each layer of a "
                "communicator ids of its own.");
  }
  for (auto& [ranks, twins] : mine) twins_.push_back(std::move(twins));
}

void ReplicaSums::add_up(Communicator& comm, std::span<const std::span<float>> slots,
                         Duration timeout) const {
  std::vector<std::vector<float>> sums;
  std::vector<Request> requests;
  for (const Twins& twins : twins_) {
    std::vector<float>& sum = sums.emplace_back();
    for (const std::vector<std::size_t>& here : twins.slots) {
      const auto first = static_cast<std::ptrdiff_t>(sum.size());
      sum.insert(sum.end(), slots[here[0]].begin(), slots[here[0]].end());
      for (std::size_t i = 1; i < here.size(); ++i) {
        std::ranges::transform(slots[here[i]],
                               std::span(sum).subspan(static_cast<std::size_t>(first)),
                               sum.begin() + first, std::plus());
      }
    }
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    requests.emplace_back();
    if (!twins_[i].group) continue;
    requests.back() =
        comm.all_reduce(sums[i], ReduceOp::kSum,
                        {.group = &*twins_[i].group, .timeout = timeout, .deterministic = true});
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    requests[i].wait();
    auto from = sums[i].begin();
    for (const std::vector<std::size_t>& here : twins_[i].slots) {
      for (const std::size_t slot : here)
        std::copy_n(from, slots[slot].size(), slots[slot].begin());
      from += std::ssize(slots[here[0]]);
    }
  }
}

}  // namespace motley::moe
