#include "wide/shard/batch_slots.h"

#include <algorithm>

namespace motley::wide {
namespace {

// The rows as they are.
Samples copied(const Samples& all, std::span<const std::uint64_t> rows) {
  Samples out;
  out.uniform = all.uniform;
  out.complete = all.complete;
  out.distinct = all.distinct;
  for (const std::uint64_t row : rows) {
    const auto begin = static_cast<std::ptrdiff_t>(all.row_begin[row]);
    const auto end = static_cast<std::ptrdiff_t>(all.row_begin[row + 1]);
    const auto append = [&](auto& to, const auto& from) {
      if (!from.empty()) to.insert(to.end(), from.begin() + begin, from.begin() + end);
    };
    append(out.slots, all.slots);
    append(out.fields, all.fields);
    if (all.uniform) {
      out.values.push_back(all.values[row]);
    } else {
      append(out.values, all.values);
    }
    out.labels.push_back(all.labels[row]);
    if (!all.weights.empty()) out.weights.push_back(all.weights[row]);
    out.row_begin.push_back(out.slots.size());
  }
  return out;
}

}  // namespace

BatchSlots SlotFinder::find(const Samples& all, std::span<const std::uint64_t> rows) {
  BatchSlots batch{.samples = copied(all, rows), .slots = {}, .entries = {}};
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
