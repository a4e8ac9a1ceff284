// moe/rows.h: tokens to the rows that experts work on, and back: sparse encode and decode and their
// gradients, which are each other's transposes.
//
//   encode_rows({.out = rows, .in = x, .index = token_of_row, .columns = 512}, workers);
//   …
//   decode_rows({.out = y, .in = rows, .row = row_of_choice, .weight = weight, .terms = 2,
//                .columns = 512}, workers);
//
//   gradient of decode by its rows     encode_rows of dy with the weights as scale
//   gradient of decode by its weights  decode_weight_gradient
//   gradient of encode                 decode_rows without weights
//
// What they do is said in comm/weighted_rows.h, which has the same for device memory: each
// _on_device there takes the same structs. Here threads share the rows, which changes no bit. A
// choice that is dropped, or of no expert, has rows of kNoRow.
#pragma once

#include "comm/weighted_rows.h"
#include "moe/workers.h"

namespace motley::moe {

void encode_rows(const ScaledRows& rows, Workers& workers);
void decode_rows(const WeightedRowSums& sums, Workers& workers);
void decode_weight_gradient(const RowProducts& products, Workers& workers);

}  // namespace motley::moe
