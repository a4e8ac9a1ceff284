// wide/samples.h: rows made ready for one model: a bipartite graph of samples and slots, stored by
// sample. Made by Model::prepare().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wide/dataset.h"

namespace motley::wide {

// Sample r has the edges [row_begin[r], row_begin[r + 1]).
struct Samples {
  Column<std::uint64_t> row_begin{0};  // [rows + 1]
  Column<float> labels;                // [rows]
  Column<float> weights;               // [rows], or empty: all 1
  Column<std::uint32_t> slots;         // [edges]; features unknown to the model are left out
  // [edges], or [rows] where all edges of a sample have one value (`uniform`); divided by the row's
  // norm if the model says so.
  Column<float> values;
  Column<std::uint16_t> fields;  // [edges], for models that look at fields; else empty
  bool uniform = false;
  bool complete = false;  // every sample has exactly one edge of each of the model's fields
  bool distinct = false;  // no sample has two edges to one slot
  std::uint64_t unknown_entries = 0;  // entries left out

  std::size_t rows() const noexcept { return labels.size(); }
  std::size_t edges() const noexcept { return slots.size(); }
  // Row i becomes what row order[i] was; order has each row once.
  void reorder(std::span<const std::uint64_t> order);
  float weight(std::size_t row) const noexcept { return weights.empty() ? 1.0f : weights[row]; }
};

// Whether no row has two entries of a slot, where ids are slots.
bool is_distinct(const Dataset& data, std::size_t slots);

}  // namespace motley::wide
