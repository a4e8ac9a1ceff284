#include "wide/shard/shards.h"

#include <algorithm>

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

void Shards::add(const Pushed& pushed) {
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

void Shards::add_up(std::span<const Pushed> from) {
  for (auto& [number, s] : shards_) {
    s.places.clear();
    s.sums.clear();
    s.entries.clear();
  }
  for (const Pushed& pushed : from) add(pushed);
  for (auto& [number, s] : shards_) {
    for (const std::uint32_t place : s.places) s.number[place] = 0;
  }
}

void Shards::put_sums(int shard, SlotSums& out) const {
  const Shard& s = shards_.at(shard);
  const std::size_t sent = floats_sent(layout_), n = layout_.width + 1;
  out.places.push_back(static_cast<std::int32_t>(s.places.size()));
  out.places.insert(out.places.end(), s.places.begin(), s.places.end());
  for (std::size_t i = 0; i < s.places.size(); ++i) {
    const float* const sum = s.sums.data() + i * n;
    out.rows.insert(out.rows.end(), sum, sum + sent - 1);
    out.rows.push_back(sum[n - 1]);
    out.rows.push_back(s.entries[i]);
  }
}

void Shards::take_sums(int shard, SlotSumsReader& in) {
  Shard& s = shards_.at(shard);
  const std::size_t sent = floats_sent(layout_), n = layout_.width + 1;
  const auto slots = static_cast<std::size_t>(in.sums.places[in.place++]);
  const std::int32_t* const places = in.sums.places.data() + in.place;
  s.places.assign(places, places + slots);
  in.place += slots;
  s.sums.assign(slots * n, 0.0f);
  s.entries.resize(slots);
  for (std::size_t i = 0; i < slots; ++i, ++in.row) {
    const float* const row = in.sums.rows.data() + in.row * (sent + 1);
    std::copy_n(row, sent - 1, s.sums.data() + i * n);
    s.sums[i * n + n - 1] = row[sent - 1];
    s.entries[i] = row[sent];
  }
}

void Shards::apply(float* shared) {
  for (auto& [number, s] : shards_) {
    s.before.clear();
    for (const std::uint32_t place : s.places) s.before.keep(s.layout, s.state.data(), place);
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
