#include "comm/weighted_rows.h"

#include <algorithm>
#include <vector>

#include "comm/kernel/row_index.h"
#include "comm/kernel/weighted_ops.h"

namespace motley {
namespace {

// Columns that are added up at once, in the nearest cache.
constexpr std::size_t kBlock = 512;

void check_index(const char* who, ConstView index, std::size_t rows) {
  const auto numbers = index.as<const std::int64_t>();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] >= kNoRow && numbers[i] < static_cast<std::int64_t>(rows)) continue;
    throw_no_row(who, i, numbers[i], rows);
  }
}

// Columns of rows of elements.
template <class T>
struct Columns {
  const T* in;
  std::size_t columns;  // of a row
  std::size_t first;
  std::size_t count;

  const T* of(std::int64_t row) const {
    return in + static_cast<std::size_t>(row) * columns + first;
  }
};

// sum += weight * the sum of the rows of one term. `part` has room for that sum.
template <class T>
void add_term(float* __restrict__ sum, float* __restrict__ part, const Columns<T>& columns,
              std::span<const std::int64_t> rows, Weighted weighted) {
  std::size_t s = 0;
  while (s < rows.size() && rows[s] == kNoRow) ++s;
  if (s == rows.size()) return;
  const T* const first = columns.of(rows[s]);
  if (rows.size() == 1) {
    for (std::size_t c = 0; c < columns.count; ++c)
      sum[c] = weighted(sum[c], cast<float>(first[c]));
    return;
  }
  for (std::size_t c = 0; c < columns.count; ++c) part[c] = cast<float>(first[c]);
  for (++s; s < rows.size(); ++s) {
    if (rows[s] == kNoRow) continue;
    const T* const next = columns.of(rows[s]);
    for (std::size_t c = 0; c < columns.count; ++c) part[c] = Sum{}(part[c], cast<float>(next[c]));
  }
  for (std::size_t c = 0; c < columns.count; ++c) sum[c] = weighted(sum[c], part[c]);
}

template <class T>
void sum_rows(const WeightedRowSums& sums) {
  const auto row = sums.row.as<const std::int64_t>();
  const auto weight = sums.weight.as<const float>();
  float sum[kBlock], part[kBlock];
  for (std::size_t t = 0; t < sums.out.count / sums.columns; ++t) {
    for (std::size_t first = 0; first < sums.columns; first += kBlock) {
      const Columns<T> columns{sums.in.as<const T>().data(), sums.columns, first,
                               std::min(kBlock, sums.columns - first)};
      std::fill_n(sum, columns.count, 0.0f);
      for (std::size_t i = t * sums.terms; i < (t + 1) * sums.terms; ++i) {
        add_term(sum, part, columns, row.subspan(i * sums.parts, sums.parts),
                 {weight.empty() ? 1.0f : weight[i]});
      }
      T* const out = sums.out.as<T>().data() + t * sums.columns + first;
      for (std::size_t c = 0; c < columns.count; ++c) out[c] = cast<T>(sum[c]);
    }
  }
}

// Eight sums, so that they can be vectors; the same ones on every processor.
template <class A, class B>
float product(const A* a, const B* b, std::size_t count) {
  float sums[8] = {};
  std::size_t c = 0;
  for (; c + 8 <= count; c += 8) {
    for (std::size_t l = 0; l < 8; ++l) sums[l] += cast<float>(a[c + l]) * cast<float>(b[c + l]);
  }
  for (std::size_t l = 0; c + l < count; ++l)
    sums[l] += cast<float>(a[c + l]) * cast<float>(b[c + l]);
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

template <class T>
void multiply(const RowProducts& products) {
  const auto row = products.row.as<const std::int64_t>();
  const auto out = products.out.as<float>();
  const Columns<T> columns{products.in.as<const T>().data(), products.columns, 0, products.columns};
  std::vector<float> sum(products.parts > 1 ? products.columns : 0), part(sum.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const T* const by = products.by.as<const T>().data() + i / products.terms * products.columns;
    const auto rows = row.subspan(i * products.parts, products.parts);
    if (rows.size() == 1) {
      out[i] = rows[0] == kNoRow ? 0 : product(by, columns.of(rows[0]), products.columns);
      continue;
    }
    std::ranges::fill(sum, 0.0f);
    add_term(sum.data(), part.data(), columns, rows, {1});
    out[i] = product(by, sum.data(), products.columns);
  }
}

}  // namespace

void gather_scaled_rows(const ScaledRows& rows) {
  expect_shape(rows);
  check_index("gather_scaled_rows", rows.index, rows.in.count / rows.columns);
  const auto index = rows.index.as<const std::int64_t>();
  const auto scale = rows.scale.as<const float>();
  dispatch_rows("gather_scaled_rows", rows.in.dtype, [&]<class T>() {
    for (std::size_t i = 0; i < index.size(); ++i) {
      T* const out = rows.out.as<T>().data() + i * rows.columns;
      if (index[i] == kNoRow) {
        std::fill_n(out, rows.columns, T{});
        continue;
      }
      const T* const in =
          rows.in.as<const T>().data() + static_cast<std::size_t>(index[i]) * rows.columns;
      if (scale.empty()) {
        std::copy_n(in, rows.columns, out);
        continue;
      }
      const Weighted weighted{scale[i]};
      for (std::size_t c = 0; c < rows.columns; ++c) out[c] = cast<T>(weighted(cast<float>(in[c])));
    }
  });
}

void sum_weighted_rows(const WeightedRowSums& sums) {
  expect_shape(sums);
  check_index("sum_weighted_rows", sums.row, sums.in.count / sums.columns);
  dispatch_rows("sum_weighted_rows", sums.in.dtype, [&]<class T>() { sum_rows<T>(sums); });
}

void multiply_rows(const RowProducts& products) {
  expect_shape(products);
  check_index("multiply_rows", products.row, products.in.count / products.columns);
  dispatch_rows("multiply_rows", products.in.dtype, [&]<class T>() { multiply<T>(products); });
}

}  // namespace motley
