#include "moe/rows.h"

#include <algorithm>

namespace motley::moe {
namespace {

// Rows or tokens of one task.
constexpr std::size_t kTaskRows = 128;

// Runs body(first, n) for rows [first, first + n), which are all those of [0, count).
template <class Body>
void each_part(Workers& workers, std::size_t count, const Body& body) {
  workers.run((count + kTaskRows - 1) / kTaskRows, [&](std::size_t task) {
    const std::size_t first = task * kTaskRows;
    body(first, std::min(kTaskRows, count - first));
  });
}

ConstView part(const ConstView& all, std::size_t first, std::size_t n) {
  return all.count == 0 ? all : all.slice(first, n);
}

}  // namespace

void encode_rows(const ScaledRows& rows, Workers& workers) {
  each_part(workers, rows.index.count, [&](std::size_t first, std::size_t n) {
    ScaledRows some = rows;
    some.out = rows.out.slice(first * rows.columns, n * rows.columns);
    some.index = rows.index.slice(first, n);
    some.scale = part(rows.scale, first, n);
    gather_scaled_rows(some);
  });
}

void decode_rows(const WeightedRowSums& sums, Workers& workers) {
  each_part(workers, sums.out.count / sums.columns, [&](std::size_t first, std::size_t n) {
    const std::size_t rows = sums.terms * sums.parts;
    WeightedRowSums some = sums;
    some.out = sums.out.slice(first * sums.columns, n * sums.columns);
    some.row = sums.row.slice(first * rows, n * rows);
    some.weight = part(sums.weight, first * sums.terms, n * sums.terms);
    sum_weighted_rows(some);
  });
}

void decode_weight_gradient(const RowProducts& products, Workers& workers) {
  each_part(workers, products.by.count / products.columns, [&](std::size_t first, std::size_t n) {
    const std::size_t rows = products.terms * products.parts;
    RowProducts some = products;
    some.out = products.out.slice(first * products.terms, n * products.terms);
    some.by = products.by.slice(first * products.columns, n * products.columns);
    some.row = products.row.slice(first * rows, n * rows);
    multiply_rows(some);
  });
}

}  // namespace motley::moe
