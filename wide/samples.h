// wide/samples.h: rows made ready for one model: a bipartite graph of samples and slots, stored by
// sample. Made by Model::prepare().
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace motley::wide {

// Sample r has the edges [row_begin[r], row_begin[r + 1]).
struct Samples {
  std::vector<std::uint64_t> row_begin{0};  // [rows + 1]
  std::vector<float> labels;                // [rows]
  std::vector<std::uint32_t> slots;         // [edges]; features unknown to the model are left out
  std::vector<float> values;          // [edges]; divided by the row's norm if the model says so
  std::uint64_t unknown_entries = 0;  // entries left out

  std::size_t rows() const noexcept { return labels.size(); }
};

}  // namespace motley::wide
