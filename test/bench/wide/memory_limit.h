// test/bench/wide/memory_limit.h: how fast this machine reads, changes and writes random rows of a
// table, which is all that a wide model's training must do.
#pragma once

#include <cstddef>

namespace motley::wide {

struct TableShape {
  std::size_t rows = 0;
  std::size_t row_bytes = 0;  // a multiple of 64
};

// Rows a second, on `threads` threads at once that write without agreement: every float of a row is
// changed, rows are drawn evenly, fetched 16 ahead, and lie in huge pages.
double random_rows_per_second(const TableShape& shape, int threads);

}  // namespace motley::wide
