// moe/rows.h: tokens to the rows that experts work on, and back: sparse encode and decode and their
// gradients, which are each other's transposes.
//
//   encode_rows({.out = rows, .in = x, .index = token_of_row, .columns = 512}, workers);
//   …
//   decode_rows({.out = y, .in = rows, .row = row_of_choice, .weight = weight, .terms = 2,
//                .columns = 512}, workers);
//
// Sums run over a token's choices in their order, in float32: no result depends on where rows lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "moe/workers.h"

namespace motley::moe {

// out[i] = scale[i] * in[index[i]].
struct RowEncoding {
  std::span<float> out;                 // [rows, columns]
  std::span<const float> in;            // [any, columns]
  std::span<const std::int64_t> index;  // [rows]
  std::span<const float> scale{};       // [rows]; empty: 1
  std::size_t columns = 1;
};
void encode_rows(const RowEncoding& encoding, Workers& workers);

// Terms of each sum that `row` names, in order: out[t] = sum_j weight[t, j] * sum_s in[row[t, j,
// s]].
struct RowDecoding {
  std::span<float> out;               // [tokens, columns]
  std::span<const float> in;          // [rows, columns]
  std::span<const std::int64_t> row;  // [tokens, terms, shards], below 0: none
  std::span<const float> weight{};    // [tokens, terms]; empty: 1
  std::size_t terms = 1;
  std::size_t shards = 1;
  std::size_t columns = 1;
};
// Overwrites `out`.
void decode_rows(const RowDecoding& decoding, Workers& workers);

// dweight[t, j] = <dy[t], sum_s in[row[t, j, s]]>, 0 where there are no rows: the gradient of
// decode_rows by its weights. `decoding.out` is not looked at.
void decode_weight_gradient(const RowDecoding& decoding, std::span<const float> dy,
                            std::span<float> dweight, Workers& workers);

}  // namespace motley::moe
