// moe/placement.h: where logical experts live: ranks, slots, replicas, shards of the hidden width.
//
//   Placement placement = Placement::grid({.experts = 8, .ranks = 8, .replicas = 2, .shards = 2});
//   for (const PhysicalExpert& mine : placement.of_rank(comm.rank())) …
//
// A logical expert has one or more replicas; a replica is one physical expert, or several that each
// hold a slice of the hidden width: every one of them sees the replica's tokens and their outputs
// are added. A placement never changes; a new one has a higher epoch. All ranks of a step use one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace motley::moe {

// One expert's parameters, or a slice of them, in one slot of one rank.
struct PhysicalExpert {
  std::int32_t expert = 0;  // logical
  int rank = 0;
  int slot = 0;     // in the rank; a rank's slots may have gaps
  int replica = 0;  // of the logical expert, [0, its replicas)
  int shard = 0;    // of the replica, [0, shards)
  int shards = 1;   // of the replica; shard s holds hidden [s * h / shards, (s + 1) * h / shards)

  bool operator==(const PhysicalExpert&) const = default;
};

struct PlacementLayout {
  std::uint64_t epoch = 0;
  int experts = 0;  // logical
  int ranks = 0;
  std::vector<PhysicalExpert> physical;  // in any order
  std::vector<std::uint8_t> alive;       // [ranks], 0 = lost; empty: all live
};

// All ranks, as `replicas` groups that each hold every expert, in groups of `shards` ranks that
// share experts: rank = (replica * R + r) * shards + shard, with R = ranks / (replicas * shards).
// Expert e is on r = e / ceil(experts / R).
struct PlacementGrid {
  std::uint64_t epoch = 0;
  int experts = 0;
  int ranks = 1;  // a multiple of replicas * shards
  int replicas = 1;
  int shards = 1;
};

class Placement {
 public:
  // What is wrong with a layout, naming the expert, rank or slot; empty if nothing is. Right is:
  // every logical expert has replica 0, 1, … without gaps, each with all its shards once; no slot
  // is used twice. Whether a rank lives plays no part: an expert without live replica is for plans
  // to skip.
  static std::string problem_of(const PlacementLayout& layout);

  // No expert on no rank.
  Placement() = default;
  // Throws kInvalid with problem_of(layout).
  explicit Placement(PlacementLayout layout);
  // Throws kInvalid if the ranks do not divide so.
  static Placement grid(const PlacementGrid& grid);

  // This one with other ranks alive, [ranks], as the next epoch.
  Placement with_alive(std::vector<std::uint8_t> alive, std::uint64_t epoch) const;

  std::uint64_t epoch() const noexcept { return layout_.epoch; }
  int experts() const noexcept { return layout_.experts; }
  int ranks() const noexcept { return layout_.ranks; }
  int most_shards() const noexcept { return most_shards_; }  // of any replica; at least 1
  bool alive(int rank) const noexcept { return layout_.alive[static_cast<std::size_t>(rank)] != 0; }

  // All physical experts, ascending by rank, then slot. Their index here is a physical expert's
  // number.
  std::span<const PhysicalExpert> physical() const noexcept { return layout_.physical; }
  // Those of a rank, and the number of their first. first_of_rank(ranks()) is the number of all.
  std::span<const PhysicalExpert> of_rank(int rank) const noexcept;
  std::int32_t first_of_rank(int rank) const noexcept {
    return first_of_rank_[static_cast<std::size_t>(rank)];
  }

  int replicas(std::int32_t expert) const noexcept;
  // The numbers of a replica's physical experts, by shard.
  std::span<const std::int32_t> replica(std::int32_t expert, int replica) const noexcept;
  // Whether all ranks of the replica live.
  bool live(std::int32_t expert, int replica) const noexcept;

  // Of all of it, epoch and dead ranks included: equal on ranks that agree.
  std::uint64_t digest() const noexcept { return digest_; }

 private:
  PlacementLayout layout_;
  int most_shards_ = 1;
  std::vector<std::int32_t> first_of_rank_ = {0};  // [ranks + 1]
  std::vector<std::size_t> first_replica_ = {0};   // [experts + 1], into first_shard_
  std::vector<std::size_t> first_shard_ = {0};     // [all replicas + 1], into by_replica_
  std::vector<std::int32_t> by_replica_;           // physical numbers by expert, replica, shard
  std::uint64_t digest_ = 0;
};

}  // namespace motley::moe
