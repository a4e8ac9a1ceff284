// wide/shard/batch_slots.h: rows of a batch with the slots that they use numbered 0, 1, …, to be
// trained on, or scored, with a state that holds no others.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "wide/samples.h"

namespace motley::wide {

struct BatchSlots {
  Samples samples;                     // slots are numbers in `slots`
  std::vector<std::uint32_t> slots;    // of the model; each once, ascending
  std::vector<std::uint32_t> entries;  // [slots]: edges of the batch
};

// Adds the row as it is. `to` has said what all its rows are; weights, where any row has them, all
// have.
void append_row(Samples& to, const Samples& from, std::uint64_t row);
Samples copied(const Samples& all, std::span<const std::uint64_t> rows);

class SlotFinder {
 public:
  explicit SlotFinder(std::size_t slots) : number_(slots) {}
  BatchSlots find(Samples rows);

 private:
  std::vector<std::uint32_t> number_;  // of each slot, from 1; zeros between batches
};

}  // namespace motley::wide
