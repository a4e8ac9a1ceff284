// comm/weighted_rows.h: rows of elements weighted and added up by an index: tokens to the rows of
// their experts, what experts give back to tokens, and the gradients of both.
//
//   gather_scaled_rows({.out = rows, .in = tokens, .index = token_of_row, .columns = 512});
//   …
//   sum_weighted_rows({.out = tokens, .in = rows, .row = row_of_term, .weight = weight,
//                      .terms = 2, .columns = 512});
//
// Elements are float32, float16 or bfloat16, alike in all arguments; weights, scales and products
// are float32. Numbers are multiplied and added in float32 and rounded once. An index is int64;
// kNoRow (comm/rows.h) names no row. On devices the first two give the bits of the CPU.
#pragma once

#include "comm/device.h"
#include "comm/rows.h"
#include "comm/view.h"

namespace motley {

// out[i] = scale[i] * in[index[i]]; rows of kNoRow become zero.
struct ScaledRows {
  View out;           // [rows, columns]
  ConstView in;       // [any, columns]
  ConstView index;    // [rows]
  ConstView scale{};  // [rows]; empty: 1
  std::size_t columns = 1;
};

// out[t] = sum_j weight[t, j] * sum_s in[row[t, j, s]], in the order of j and s; what is kNoRow is
// left out.
struct WeightedRowSums {
  View out;            // [sums, columns]
  ConstView in;        // [any, columns]
  ConstView row;       // [sums, terms, parts]
  ConstView weight{};  // [sums, terms]; empty: 1
  std::size_t terms = 1;
  std::size_t parts = 1;
  std::size_t columns = 1;
};

// out[t, j] = <by[t], sum_s in[row[t, j, s]]>, 0 where all are kNoRow: the gradient of weighted
// sums by their weights.
struct RowProducts {
  View out;       // [sums, terms] float32
  ConstView by;   // [sums, columns]
  ConstView in;   // [any, columns]
  ConstView row;  // [sums, terms, parts]
  std::size_t terms = 1;
  std::size_t parts = 1;
  std::size_t columns = 1;
};

//   errors  kInvalid, with the first number that names no row, before anything is written; for
//           other dtypes
void gather_scaled_rows(const ScaledRows& rows);
void sum_weighted_rows(const WeightedRowSums& sums);
void multiply_rows(const RowProducts& products);

// The same on device memory, in stream order. Numbers that name no row are noted and taken for
// kNoRow. Products are added in another order than on the CPU, always the same one.
//   errors  kInvalid for other dtypes
void gather_scaled_rows_on_device(const ScaledRows& rows, RowCheck& check, StreamRef stream);
void sum_weighted_rows_on_device(const WeightedRowSums& sums, RowCheck& check, StreamRef stream);
void multiply_rows_on_device(const RowProducts& products, RowCheck& check, StreamRef stream);

}  // namespace motley
