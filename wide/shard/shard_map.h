// wide/shard/shard_map.h: which workers keep which slots. Slots below `hot` are everybody's; of the
// others, shard s has hot + s, hot + s + n, …, for n shards, as many as there were workers: slots
// are numbered by frequency, so that all shards are used alike. Worker s gives the weights of shard
// s; the next ones in the ring keep copies, and take over where it dies.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace motley::wide {

class ShardMap {
 public:
  // `copies`: workers that keep a shard, fewer where fewer live.
  ShardMap(std::uint64_t slots, std::uint64_t hot, int workers, int copies)
      : slots_(slots),
        hot_(std::min(slots, hot)),
        shards_(workers),
        copies_(copies),
        alive_(static_cast<std::size_t>(workers)) {
    std::iota(alive_.begin(), alive_.end(), 0);
  }

  std::uint64_t slots() const noexcept { return slots_; }
  std::uint64_t hot() const noexcept { return hot_; }
  int shards() const noexcept { return shards_; }
  int shard_of(std::uint64_t slot) const noexcept {
    return static_cast<int>((slot - hot_) % static_cast<unsigned>(shards_));
  }
  // Among the slots of its shard.
  std::uint64_t place_of(std::uint64_t slot) const noexcept {
    return (slot - hot_) / static_cast<unsigned>(shards_);
  }
  std::uint64_t slot_at(int shard, std::uint64_t place) const noexcept {
    return hot_ + static_cast<unsigned>(shard) + place * static_cast<unsigned>(shards_);
  }
  std::uint64_t slots_of(int shard) const noexcept {
    const std::uint64_t n = static_cast<unsigned>(shards_), cold = slots_ - hot_;
    return cold / n + (static_cast<unsigned>(shard) < cold % n ? 1 : 0);
  }

  // Ranks, ascending.
  const std::vector<int>& alive() const noexcept { return alive_; }
  void remove(int rank) { std::erase(alive_, rank); }

  // Whether any shard has one.
  bool has_copies() const noexcept { return copies_ > 1 && alive_.size() > 1; }
  // Shards that `giver` gives and `keeper` has a copy of, ascending.
  std::vector<int> copied(int giver, int keeper) const {
    std::vector<int> found;
    for (int shard = 0; shard < shards_; ++shard) {
      const std::vector<int> ranks = keepers(shard);
      if (ranks.front() == giver &&
          std::find(ranks.begin() + 1, ranks.end(), keeper) != ranks.end())
        found.push_back(shard);
    }
    return found;
  }

  // The worker that gives the shard's weights, then those that keep copies.
  std::vector<int> keepers(int shard) const {
    std::vector<int> found;
    for (int i = 0; i < shards_ && static_cast<int>(found.size()) < copies_; ++i) {
      const int rank = (shard + i) % shards_;
      if (std::binary_search(alive_.begin(), alive_.end(), rank)) found.push_back(rank);
    }
    return found;
  }

 private:
  std::uint64_t slots_, hot_;
  int shards_, copies_;
  std::vector<int> alive_;
};

}  // namespace motley::wide
