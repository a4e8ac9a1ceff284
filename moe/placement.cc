#include "moe/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "comm/error.h"
#include "moe/digest.h"

namespace motley::moe {
namespace {

std::string range_problem(const PlacementLayout& layout, const PhysicalExpert& p) {
  if (p.expert < 0 || p.expert >= layout.experts) {
    return fmt::format("slot {} of rank {} holds expert {} of {}. Use [0, {}).", p.slot, p.rank,
                       p.expert, layout.experts, layout.experts);
  }
  if (p.rank < 0 || p.rank >= layout.ranks) {
    return fmt::format("expert {} is on rank {} of {}. Use [0, {}).", p.expert, p.rank,
                       layout.ranks, layout.ranks);
  }
  if (p.slot < 0 || p.replica < 0 || p.shards < 1 || p.shard < 0 || p.shard >= p.shards) {
    return fmt::format(
        "expert {} on rank {} is shard {} of {} of replica {} in slot {}. Shards are "
        "in [0, shards), replicas and slots at least 0.",
        p.expert, p.rank, p.shard, p.shards, p.replica, p.slot);
  }
  return "";
}

auto by_slot(const PhysicalExpert& p) { return std::tuple(p.rank, p.slot); }
auto by_expert(const PhysicalExpert& p) { return std::tuple(p.expert, p.replica, p.shard); }

// Whether `next` may follow `last` in the order by expert, replica, shard.
bool follows(const PhysicalExpert& last, const PhysicalExpert& next) {
  const bool whole = last.shard + 1 == last.shards;
  if (next.expert == last.expert && next.replica == last.replica) {
    return next.shard == last.shard + 1 && next.shards == last.shards;
  }
  const bool starts = next.shard == 0;
  if (next.expert == last.expert) return whole && starts && next.replica == last.replica + 1;
  return whole && starts && next.replica == 0 && next.expert == last.expert + 1;
}

std::string completeness_problem(const PlacementLayout& layout) {
  std::vector<PhysicalExpert> sorted = layout.physical;
  std::ranges::sort(sorted, {}, by_expert);
  // The last shard of the expert before the first, so that one rule covers the ends.
  PhysicalExpert last{.expert = -1};
  for (const PhysicalExpert& next : sorted) {
    if (!follows(last, next)) {
      return fmt::format(
          "expert {} replica {} shard {} of {} (rank {}, slot {}) cannot stand beside "
          "expert {} replica {} shard {} of {}. Every expert needs replicas 0, 1, … "
          "and each of them all its shards once.",
          next.expert, next.replica, next.shard, next.shards, next.rank, next.slot, last.expert,
          last.replica, last.shard, last.shards);
    }
    last = next;
  }
  if (last.expert + 1 == layout.experts && last.shard + 1 == last.shards) return "";
  return fmt::format("it ends with expert {} shard {} of {}, but has {} experts. Place the rest.",
                     last.expert, last.shard, last.shards, layout.experts);
}

}  // namespace

std::string Placement::problem_of(const PlacementLayout& layout) {
  if (layout.experts < 0 || layout.ranks < 0) {
    return fmt::format("it has {} experts on {} ranks. Both must be at least 0.", layout.experts,
                       layout.ranks);
  }
  if (!layout.alive.empty() && layout.alive.size() != static_cast<std::size_t>(layout.ranks)) {
    return fmt::format("alive is of {} ranks, not {}. Give one for each, or none.",
                       layout.alive.size(), layout.ranks);
  }
  for (const PhysicalExpert& p : layout.physical) {
    if (const std::string problem = range_problem(layout, p); !problem.empty()) return problem;
  }
  std::vector<PhysicalExpert> sorted = layout.physical;
  std::ranges::sort(sorted, {}, by_slot);
  const auto twice = std::ranges::adjacent_find(sorted, {}, by_slot);
  if (twice != sorted.end()) {
    return fmt::format("slot {} of rank {} holds experts {} and {}. One slot holds one.",
                       twice->slot, twice->rank, twice->expert, std::next(twice)->expert);
  }
  return completeness_problem(layout);
}

Placement::Placement(PlacementLayout layout) : layout_(std::move(layout)) {
  if (const std::string problem = problem_of(layout_); !problem.empty()) {
    throw Error(ErrorCode::kInvalid, "moe placement: " + problem);
  }
  if (layout_.alive.empty()) layout_.alive.assign(static_cast<std::size_t>(layout_.ranks), 1);
  std::vector<PhysicalExpert>& physical = layout_.physical;
  std::ranges::sort(physical, {}, by_slot);

  first_of_rank_.assign(static_cast<std::size_t>(layout_.ranks) + 1, 0);
  for (const PhysicalExpert& p : physical) ++first_of_rank_[static_cast<std::size_t>(p.rank) + 1];
  for (std::size_t r = 1; r < first_of_rank_.size(); ++r)
    first_of_rank_[r] += first_of_rank_[r - 1];

  by_replica_.resize(physical.size());
  for (std::size_t i = 0; i < physical.size(); ++i) by_replica_[i] = static_cast<std::int32_t>(i);
  const auto at = [&](std::int32_t i) -> const PhysicalExpert& {
    return physical[static_cast<std::size_t>(i)];
  };
  std::ranges::sort(by_replica_, {}, [&](std::int32_t i) { return by_expert(at(i)); });
  first_replica_.assign(static_cast<std::size_t>(layout_.experts) + 1, 0);
  for (std::size_t i = 0; i < by_replica_.size(); ++i) {
    const PhysicalExpert& p = at(by_replica_[i]);
    most_shards_ = std::max(most_shards_, p.shards);
    if (p.shard + 1 < p.shards) continue;
    first_shard_.push_back(i + 1);
    ++first_replica_[static_cast<std::size_t>(p.expert) + 1];
  }
  for (std::size_t e = 1; e < first_replica_.size(); ++e)
    first_replica_[e] += first_replica_[e - 1];

  Digest digest;
  digest.add(layout_.epoch).add(layout_.experts).add(layout_.alive).add(physical.size());
  for (const PhysicalExpert& p : physical) {
    digest.add(p.expert).add(p.rank).add(p.slot).add(p.replica).add(p.shard).add(p.shards);
  }
  digest_ = digest.value();
}

Placement Placement::grid(const PlacementGrid& grid) {
  const std::int64_t together = std::int64_t{grid.replicas} * grid.shards;
  if (grid.experts < 1 || grid.replicas < 1 || grid.shards < 1 || grid.ranks < together ||
      grid.ranks % together != 0) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("moe placement: {} experts as {} replicas of {} shards do not fit {} "
                            "ranks. Ranks must be a multiple of replicas * shards.",
                            grid.experts, grid.replicas, grid.shards, grid.ranks));
  }
  const int parts = grid.ranks / static_cast<int>(together);
  const int share = (grid.experts + parts - 1) / parts;
  PlacementLayout layout{.epoch = grid.epoch, .experts = grid.experts, .ranks = grid.ranks};
  for (int replica = 0; replica < grid.replicas; ++replica) {
    for (int e = 0; e < grid.experts; ++e) {
      for (int shard = 0; shard < grid.shards; ++shard) {
        layout.physical.push_back({.expert = e,
                                   .rank = (replica * parts + e / share) * grid.shards + shard,
                                   .slot = e % share,
                                   .replica = replica,
                                   .shard = shard,
                                   .shards = grid.shards});
      }
    }
  }
  return Placement(std::move(layout));
}

Placement Placement::with_alive(std::vector<std::uint8_t> alive, std::uint64_t epoch) const {
  PlacementLayout next = layout_;
  next.alive = std::move(alive);
  next.epoch = epoch;
  return Placement(std::move(next));
}

std::span<const PhysicalExpert> Placement::of_rank(int rank) const noexcept {
  const auto first = static_cast<std::size_t>(first_of_rank(rank));
  return physical().subspan(first, static_cast<std::size_t>(first_of_rank(rank + 1)) - first);
}

int Placement::replicas(std::int32_t expert) const noexcept {
  const auto e = static_cast<std::size_t>(expert);
  return static_cast<int>(first_replica_[e + 1] - first_replica_[e]);
}

std::span<const std::int32_t> Placement::replica(std::int32_t expert, int replica) const noexcept {
  const std::size_t i =
      first_replica_[static_cast<std::size_t>(expert)] + static_cast<std::size_t>(replica);
  return std::span(by_replica_).subspan(first_shard_[i], first_shard_[i + 1] - first_shard_[i]);
}

bool Placement::live(std::int32_t expert, int replica) const noexcept {
  return std::ranges::all_of(this->replica(expert, replica), [&](std::int32_t i) {
    return alive(layout_.physical[static_cast<std::size_t>(i)].rank);
  });
}

}  // namespace motley::moe
