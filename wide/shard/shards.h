// wide/shard/shards.h: the shards that a worker keeps, to give their weights or as copies.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "wide/fresh_state.h"
#include "wide/huge_pages.h"
#include "wide/shard/shard_map.h"
#include "wide/shard/slot_rule.h"

namespace motley::wide {

// What a worker was sent by another one: gradients of the slots that it had asked for.
struct Pushed {
  std::span<const std::int32_t> slots;
  std::span<const std::int16_t> entries;  // as unsigned numbers
  const float* gradients;                 // [slots][floats_sent()]
};

class Shards {
 public:
  // `map` must outlive it. Keeps nothing yet.
  Shards(const ShardMap& map, const Layout& layout, const SlotRule& rule)
      : map_(map), layout_(layout), rule_(rule) {}

  bool keeps(int shard) const { return shards_.contains(shard); }
  // Begins to keep a shard, with unset weights; no longer does.
  void add(int shard);
  void drop(int shard) { shards_.erase(shard); }
  // Of its state, kept here or not.
  std::size_t floats_of(int shard) const { return layout_of(shard).size(); }
  const Layout& layout(int shard) const { return shards_.at(shard).layout; }
  std::span<float> state(int shard) { return shards_.at(shard).state; }
  std::span<const float> state(int shard) const { return shards_.at(shard).state; }

  // The weights of a slot of a shard that is kept here.
  void read(std::uint64_t slot, float* to) const {
    const Shard& shard = shards_.at(map_.shard_of(slot));
    read_weights(shard.layout, shard.state.data(), map_.place_of(slot), to);
  }

  // Keeps the state as it is now, beside it; and puts it back.
  void remember() {
    for (auto& [number, shard] : shards_) shard.best = shard.state;
  }
  void recall() {
    for (auto& [number, shard] : shards_) shard.state = shard.best;
  }
  // What was remembered: as large as the state, or empty.
  Floats& remembered(int shard) { return shards_.at(shard).best; }

  // Which step asked for a slot last.
  void note(std::uint64_t slot, std::uint32_t step) {
    shards_.at(map_.shard_of(slot)).asked[map_.place_of(slot)] = step;
  }
  std::uint32_t noted(std::uint64_t slot) const {
    return shards_.at(map_.shard_of(slot)).asked[map_.place_of(slot)];
  }
  void forget_notes();

  // Each slot steps once, by the sum of what was sent for it, in the order of `from`.
  void apply(std::span<const Pushed> from, float* shared);
  // All are as before the last apply().
  void undo();

 private:
  struct Shard {
    Layout layout;
    Floats state, best;
    std::vector<std::uint32_t> asked;   // the step that did so last
    std::vector<std::uint32_t> number;  // in `places`, from 1; zeros between steps
    // Of the step that is applied.
    std::vector<std::uint32_t> places;
    std::vector<float> sums, entries;
    SlotsBefore before;
  };
  Layout layout_of(int shard) const {
    Layout layout = layout_;
    layout.slots = map_.slots_of(shard);
    return layout;
  }
  void add_up(const Pushed& pushed);

  const ShardMap& map_;
  Layout layout_;  // of all slots
  const SlotRule& rule_;
  std::map<int, Shard> shards_;
};

}  // namespace motley::wide
