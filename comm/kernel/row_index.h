// comm/kernel/row_index.h: walks an index of rows on the CPU, none of whose numbers is wrong.
#pragma once

#include <cassert>
#include <cstdint>
#include <string_view>

#include "comm/rows.h"
#include "comm/view.h"

namespace motley {

[[noreturn]] void throw_no_row(std::string_view who, std::size_t position, std::int64_t index,
                               std::size_t rows);

// Calls each(i, index[i]) for every index that is not kNoRow, once all are known to be good.
template <class Index, class Each>
void for_each_row(std::string_view who, ConstView view, std::size_t rows, Each&& each) {
  const auto index = view.as<const Index>();
  for (std::size_t i = 0; i < index.size(); ++i) {
    const std::int64_t row = index[i];
    if (row < kNoRow || row >= static_cast<std::int64_t>(rows)) throw_no_row(who, i, row, rows);
  }
  for (std::size_t i = 0; i < index.size(); ++i) {
    if (index[i] != kNoRow) each(i, static_cast<std::size_t>(index[i]));
  }
}

template <class Each>
void for_each_row(std::string_view who, ConstView index, std::size_t rows, Each&& each) {
  assert(index.dtype == DType::kInt32 || index.dtype == DType::kInt64);
  if (index.dtype == DType::kInt32) return for_each_row<std::int32_t>(who, index, rows, each);
  for_each_row<std::int64_t>(who, index, rows, each);
}

// `rows` rows of `move` on its side without an index.
inline void expect_shape([[maybe_unused]] const RowMove& move,
                         [[maybe_unused]] std::size_t elements) {
  assert(move.out.dtype == move.in.dtype && move.columns != 0);
  assert(elements == move.index.count * move.columns);
}

}  // namespace motley
