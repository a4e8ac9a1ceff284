#include "wide/samples.h"

#include <cassert>

namespace motley::wide {
namespace {

template <class T>
void reorder_rows(Column<T>& of_rows, std::span<const std::uint64_t> order) {
  if (of_rows.empty()) return;
  Column<T> fresh;
  fresh.reserve(of_rows.size());
  for (const std::uint64_t row : order) fresh.push_back(of_rows[row]);
  of_rows = std::move(fresh);
}

template <class T>
void reorder_edges(Column<T>& of_edges, const Column<std::uint64_t>& row_begin,
                   std::span<const std::uint64_t> order) {
  if (of_edges.empty()) return;
  Column<T> fresh;
  fresh.reserve(of_edges.size());
  for (const std::uint64_t row : order) {
    const auto at = [&](std::uint64_t e) {
      return of_edges.begin() + static_cast<std::ptrdiff_t>(e);
    };
    fresh.insert(fresh.end(), at(row_begin[row]), at(row_begin[row + 1]));
  }
  of_edges = std::move(fresh);
}

}  // namespace

void Samples::reorder(std::span<const std::uint64_t> order) {
  assert(order.size() == rows());
  reorder_rows(labels, order);
  reorder_rows(weights, order);
  reorder_edges(slots, row_begin, order);
  reorder_edges(fields, row_begin, order);
  if (uniform) {
    reorder_rows(values, order);
  } else {
    reorder_edges(values, row_begin, order);
  }
  Column<std::uint64_t> fresh{0};
  fresh.reserve(row_begin.size());
  for (const std::uint64_t row : order) {
    fresh.push_back(fresh.back() + row_begin[row + 1] - row_begin[row]);
  }
  row_begin = std::move(fresh);
}

}  // namespace motley::wide
