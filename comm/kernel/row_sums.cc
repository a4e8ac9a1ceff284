#include "comm/row_sums.h"

#include <fmt/format.h>

#include "comm/error.h"
#include "comm/kernel/ops.h"
#include "comm/kernel/row_index.h"

namespace motley {
namespace {

void check_segments(const RowSegments& sums, std::size_t rows, std::size_t in_rows) {
  const auto order = sums.order.as<const std::int64_t>();
  const auto offsets = sums.offsets.as<const std::int64_t>();
  assert(sums.out.dtype == sums.in.dtype && offsets.size() == rows + 1);
  for (std::size_t r = 0; r <= rows; ++r) {
    const std::int64_t least = r == 0 ? 0 : offsets[r - 1];
    const auto most = static_cast<std::int64_t>(order.size());
    const bool is_end = r == 0 ? offsets[r] == 0 : r < rows || offsets[r] == most;
    if (offsets[r] >= least && offsets[r] <= most && is_end) continue;
    throw Error(ErrorCode::kInvalid,
                fmt::format("add_row_segments: offsets[{}] is {}. They must ascend from 0 to the "
                            "{} numbers of `order`.",
                            r, offsets[r], order.size()));
  }
  for (std::size_t k = 0; k < order.size(); ++k) {
    if (order[k] >= 0 && order[k] < static_cast<std::int64_t>(in_rows)) continue;
    throw_no_row("add_row_segments", k, order[k], in_rows);
  }
}

}  // namespace

void scatter_add_rows(const RowMove& move) {
  expect_shape(move, move.in.count);
  dispatch(move.out.dtype, [&]<class T>() {
    for_each_row("scatter_add_rows", move.index, move.out.count / move.columns,
                 [&](std::size_t i, std::size_t row) {
                   T* const out = move.out.as<T>().data() + row * move.columns;
                   const T* const in = move.in.as<const T>().data() + i * move.columns;
                   for (std::size_t c = 0; c < move.columns; ++c) out[c] = Sum{}(out[c], in[c]);
                 });
  });
}

void add_row_segments(const RowSegments& sums) {
  const std::size_t columns = sums.columns, rows = sums.out.count / columns;
  check_segments(sums, rows, sums.in.count / columns);
  const auto order = sums.order.as<const std::int64_t>();
  const auto offsets = sums.offsets.as<const std::int64_t>();
  dispatch(sums.out.dtype, [&]<class T>() {
    std::vector<Wide<T>> sum(columns);
    for (std::size_t r = 0; r < rows; ++r) {
      if (offsets[r] == offsets[r + 1]) continue;
      T* const out = sums.out.as<T>().data() + r * columns;
      for (std::size_t c = 0; c < columns; ++c) sum[c] = cast<Wide<T>>(out[c]);
      for (auto k = static_cast<std::size_t>(offsets[r]);
           k < static_cast<std::size_t>(offsets[r + 1]); ++k) {
        const T* const in =
            sums.in.as<const T>().data() + static_cast<std::size_t>(order[k]) * columns;
        for (std::size_t c = 0; c < columns; ++c) sum[c] = Sum{}(sum[c], cast<Wide<T>>(in[c]));
      }
      for (std::size_t c = 0; c < columns; ++c) out[c] = cast<T>(sum[c]);
    }
  });
}

IndexSegments segments_of(ConstView index, std::size_t rows) {
  IndexSegments by{.order = {}, .offsets = std::vector<std::int64_t>(rows + 1)};
  for_each_row("segments_of", index, rows,
               [&](std::size_t, std::size_t row) { ++by.offsets[row + 1]; });
  for (std::size_t r = 0; r < rows; ++r) by.offsets[r + 1] += by.offsets[r];
  by.order.resize(static_cast<std::size_t>(by.offsets[rows]));
  std::vector<std::int64_t> next = by.offsets;
  for_each_row("segments_of", index, rows, [&](std::size_t i, std::size_t row) {
    by.order[static_cast<std::size_t>(next[row]++)] = static_cast<std::int64_t>(i);
  });
  return by;
}

}  // namespace motley
