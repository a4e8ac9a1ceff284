// comm/row_sums.h: rows of elements added to those that an index names: gradients of features to
// their table, what experts give back to its tokens.
//
//   scatter_add_rows({.out = table, .in = gradients, .index = features, .columns = 64});
//
//   const IndexSegments by = segments_of(features, rows);         // the same sums, and on devices
//   add_row_segments({table, gradients, by.order, by.offsets, 64});  // always the same bits
#pragma once

#include <cstdint>
#include <vector>

#include "comm/device.h"
#include "comm/rows.h"
#include "comm/view.h"

namespace motley {

// out[index[i]] += in[i], in [m, columns], one i after another; rows of kNoRow are left out. A row
// may be named often. 16-bit floats are rounded after each.
//   errors  kInvalid, with the first index that names no row, before anything is written
void scatter_add_rows(const RowMove& move);

// The same on device memory, in stream order, but in any order of i: sums of floats may differ in
// their last bits from one time to the next. Two 16-bit floats are added at once where `columns` is
// even and rows lie at multiples of 4 bytes.
//   errors  kInvalid for int8 and int16, which devices do not add so
void scatter_add_rows_on_device(const RowMove& move, RowCheck& check, StreamRef stream);

// out[r] += in[order[k]] for k = offsets[r], …, offsets[r + 1] - 1, in that order; 16-bit floats
// are added in float32 and rounded once.
//   out  [rows, columns]    in  [any number of rows, columns], of the same dtype, elsewhere
//   order    [m] int64, numbers of rows of `in`
//   offsets  [rows + 1] int64, ascending from 0 to m
//   errors   kInvalid, with the first number that is out of its range, before anything is written
struct RowSegments {
  View out;
  ConstView in;
  ConstView order;
  ConstView offsets;
  std::size_t columns = 1;
};
void add_row_segments(const RowSegments& sums);

// The same on device memory, in stream order, with the same bits but for the payload of NaN. A
// number of a row that is none is left out and noted; offsets are taken as if within [0, m].
void add_row_segments_on_device(const RowSegments& sums, RowCheck& check, StreamRef stream);

// For each of `rows` rows where the index names it, ascending.
struct IndexSegments {
  std::vector<std::int64_t> order;    // positions in the index, without those of kNoRow
  std::vector<std::int64_t> offsets;  // [rows + 1]
};
//   index   [m] int32 or int64, in host memory
//   errors  kInvalid, with the first index that names no row
IndexSegments segments_of(ConstView index, std::size_t rows);

}  // namespace motley
