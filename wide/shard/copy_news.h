// wide/shard/copy_news.h: what those that keep copies of a worker's shards have not been told yet,
// where nobody waits for them. They are told the state of slots, not what these are stepped by:
// what a slot has been through between two messages is one state, and a copy is always what its
// shard was when the last message that came was made.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "wide/shard/shards.h"

namespace motley::wide {

struct SlotStates {
  std::vector<std::int32_t> slots;
  std::vector<float> states;  // [slots][slot_floats()]
};

class CopyNews {
 public:
  // `giver` gives shards, and others keep copies, as the map is now; these are what the shards are.
  CopyNews(const ShardMap& map, int giver);

  const std::vector<int>& keepers() const noexcept { return keepers_; }
  // These slots, of shards that are given here, are others than they were.
  void changed(std::span<const std::int32_t> slots);
  // What a keeper has not been told, which it is thereby.
  SlotStates take(int keeper, const Shards& shards, const Layout& layout);

 private:
  struct Untold {
    std::map<int, std::vector<bool>> marks;  // by shard that it has a copy of, by place
    std::vector<std::int32_t> slots;         // that are marked
  };

  const ShardMap& map_;
  std::vector<int> keepers_;  // ranks
  std::map<int, Untold> untold_;
};

}  // namespace motley::wide
