#include "wide/shard/shards.h"

namespace motley::wide {

void Shards::add(int shard) {
  Shard& s = shards_[shard];
  s.layout = layout_of(shard);
  s.state.assign(s.layout.size(), 0.0f);
  s.asked.assign(s.layout.slots, 0);
  s.number.assign(s.layout.slots, 0);
}

void Shards::forget_notes() {
  for (auto& [number, shard] : shards_) std::fill(shard.asked.begin(), shard.asked.end(), 0);
}

void Shards::add_up(const Pushed& pushed) {
  const std::size_t sent = floats_sent(layout_), n = layout_.width + 1;
  for (std::size_t i = 0; i < pushed.slots.size(); ++i) {
    const auto slot = static_cast<std::uint64_t>(pushed.slots[i]);
    Shard& s = shards_.at(map_.shard_of(slot));
    const std::uint64_t place = map_.place_of(slot);
    const float* const gradient = pushed.gradients + i * sent;
    const auto entries = static_cast<float>(static_cast<std::uint16_t>(pushed.entries[i]));
    if (s.number[place] == 0) {
      s.places.push_back(static_cast<std::uint32_t>(place));
      s.number[place] = static_cast<std::uint32_t>(s.places.size());
      s.sums.insert(s.sums.end(), gradient, gradient + sent - 1);
      s.sums.resize(s.places.size() * n - 1);  // with zeros for what fills factors up
      s.sums.push_back(gradient[sent - 1]);
      s.entries.push_back(entries);
      continue;
    }
    const std::size_t at = s.number[place] - 1;
    for (std::size_t d = 0; d + 1 < sent; ++d) s.sums[at * n + d] += gradient[d];
    s.sums[at * n + n - 1] += gradient[sent - 1];
    s.entries[at] += entries;
  }
}

void Shards::apply(std::span<const Pushed> from, float* shared) {
  for (auto& [number, s] : shards_) {
    s.places.clear();
    s.sums.clear();
    s.entries.clear();
    s.before.clear();
  }
  for (const Pushed& pushed : from) add_up(pushed);
  for (auto& [number, s] : shards_) {
    for (const std::uint32_t place : s.places) {
      s.before.keep(s.layout, s.state.data(), place);
      s.number[place] = 0;
    }
    rule_.apply(s.layout,
                {.slots = s.places.data(),
                 .sums = s.sums.data(),
                 .entries = s.entries.data(),
                 .n = s.places.size()},
                s.state.data(), shared);
  }
}

void Shards::undo() {
  for (auto& [number, s] : shards_) s.before.restore(s.layout, s.state.data());
}

}  // namespace motley::wide
