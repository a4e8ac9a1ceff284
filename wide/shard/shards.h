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

// What slots are stepped by, as it goes from who gives their shards to who keeps copies.
struct SlotSums {
  std::vector<std::int32_t> places;  // for each shard: how many, then these in the shard
  std::vector<float> rows;           // [slots][floats_sent() + 1]: sums of gradients, edges
};
// Goes through them, shard by shard.
struct SlotSumsReader {
  const SlotSums& sums;
  std::size_t place = 0, row = 0;
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

  // All of a slot's state: [slot_floats()].
  void take(std::uint64_t slot, float* to) const {
    const Shard& shard = shards_.at(map_.shard_of(slot));
    take_slot(shard.layout, shard.state.data(), map_.place_of(slot), to);
  }
  void put(std::uint64_t slot, const float* from) {
    Shard& shard = shards_.at(map_.shard_of(slot));
    put_slot(shard.layout, from, map_.place_of(slot), shard.state.data());
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

  // Adds up what was sent for the slots of shards that are given here, in the order of `from`.
  void add_up(std::span<const Pushed> from);
  // What was added up for a shard goes behind `out`; comes to a copy of it, of which nothing was.
  void put_sums(int shard, SlotSums& out) const;
  void take_sums(int shard, SlotSumsReader& in);
  // Each slot steps once, by its sum.
  void apply(float* shared);
  // All are as before the last apply().
  void undo();

 private:
  struct Shard {
    Layout layout;
    Floats state, best;
    std::vector<std::uint32_t> asked;   // the step that did so last
    std::vector<std::uint32_t> number;  // in `places`, from 1; zeros but in add_up()
    // Of the step that is applied; a sum has what fills factors up, too.
    std::vector<std::uint32_t> places;
    std::vector<float> sums, entries;
    SlotsBefore before;
  };
  Layout layout_of(int shard) const {
    Layout layout = layout_;
    layout.slots = map_.slots_of(shard);
    return layout;
  }
  void add(const Pushed& pushed);

  const ShardMap& map_;
  Layout layout_;  // of all slots
  const SlotRule& rule_;
  std::map<int, Shard> shards_;
};

}  // namespace motley::wide
