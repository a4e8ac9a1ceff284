#include "wide/shard/batch_slots.h"

#include <algorithm>
#include <utility>

namespace motley::wide {

void append_row(Samples& to, const Samples& from, std::uint64_t row) {
  const auto begin = static_cast<std::ptrdiff_t>(from.row_begin[row]);
  const auto end = static_cast<std::ptrdiff_t>(from.row_begin[row + 1]);
  const auto append = [&](auto& out, const auto& in) {
    if (!in.empty()) out.insert(out.end(), in.begin() + begin, in.begin() + end);
  };
  append(to.slots, from.slots);
  append(to.fields, from.fields);
  if (to.uniform) {
    to.values.push_back(from.values[row]);
  } else if (from.uniform) {
    to.values.resize(to.slots.size(), from.values[row]);
  } else {
    append(to.values, from.values);
  }
  to.labels.push_back(from.labels[row]);
  if (!from.weights.empty()) to.weights.push_back(from.weights[row]);
  to.row_begin.push_back(to.slots.size());
}

Samples copied(const Samples& all, std::span<const std::uint64_t> rows) {
  Samples out;
  out.uniform = all.uniform;
  out.complete = all.complete;
  out.distinct = all.distinct;
  for (const std::uint64_t row : rows) append_row(out, all, row);
  return out;
}

BatchSlots SlotFinder::find(Samples rows) {
  BatchSlots batch{.samples = std::move(rows), .slots = {}, .entries = {}};
  for (const std::uint32_t slot : batch.samples.slots) {
    if (number_[slot]++ == 0) batch.slots.push_back(slot);
  }
  std::sort(batch.slots.begin(), batch.slots.end());
  batch.entries.reserve(batch.slots.size());
  for (std::uint32_t i = 0; i < batch.slots.size(); ++i) {
    std::uint32_t& number = number_[batch.slots[i]];
    batch.entries.push_back(number);
    number = i;
  }
  for (std::uint32_t& slot : batch.samples.slots) slot = number_[slot];
  for (const std::uint32_t slot : batch.slots) number_[slot] = 0;
  return batch;
}

}  // namespace motley::wide
