#include "wide/shard/copy_news.h"

#include <utility>

#include "wide/shard/slot_rule.h"

namespace motley::wide {

CopyNews::CopyNews(const ShardMap& map, int giver) : map_(map) {
  for (const int rank : map.alive()) {
    const std::vector<int> copied = map.copied(giver, rank);
    if (copied.empty()) continue;
    keepers_.push_back(rank);
    for (const int shard : copied)
      untold_[rank].marks[shard].resize(static_cast<std::size_t>(map.slots_of(shard)));
  }
}

void CopyNews::changed(std::span<const std::int32_t> slots) {
  for (auto& [rank, untold] : untold_) {
    for (const std::int32_t slot : slots) {
      const auto number = static_cast<std::uint64_t>(slot);
      const auto marks = untold.marks.find(map_.shard_of(number));
      if (marks == untold.marks.end()) continue;
      std::vector<bool>::reference mark = marks->second[map_.place_of(number)];
      if (mark) continue;
      mark = true;
      untold.slots.push_back(slot);
    }
  }
}

SlotStates CopyNews::take(int keeper, const Shards& shards, const Layout& layout) {
  Untold& untold = untold_.at(keeper);
  SlotStates news{.slots = std::exchange(untold.slots, {}), .states = {}};
  const std::size_t n = slot_floats(layout);
  news.states.resize(news.slots.size() * n);
  for (std::size_t i = 0; i < news.slots.size(); ++i) {
    const auto slot = static_cast<std::uint64_t>(news.slots[i]);
    shards.take(slot, news.states.data() + i * n);
    untold.marks.at(map_.shard_of(slot))[map_.place_of(slot)] = false;
  }
  return news;
}

}  // namespace motley::wide
