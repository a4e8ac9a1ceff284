// moe/gate/rows.h: sums and products over rows of float64, in a fixed order of four lanes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace motley::moe::gate {

using In = std::span<const double>;
using Out = std::span<double>;
using Chosen = std::span<std::int32_t>;

// Row `i` of a matrix with `columns` columns.
template <class T>
std::span<T> row(std::span<T> matrix, std::size_t i, std::size_t columns) {
  return matrix.subspan(i * columns, columns);
}

namespace lanes {
using Four [[gnu::vector_size(32)]] = double;
inline constexpr std::size_t kCount = 4;

inline void load(Four& out, const double* from) { std::memcpy(&out, from, sizeof out); }
inline void store(double* to, const Four& value) { std::memcpy(to, &value, sizeof value); }
}  // namespace lanes

inline double dot(In a, In b) {
  lanes::Four sum{}, x, y;
  std::size_t i = 0;
  for (; i + lanes::kCount <= a.size(); i += lanes::kCount) {
    lanes::load(x, &a[i]);
    lanes::load(y, &b[i]);
    sum += x * y;
  }
  double total = (sum[0] + sum[1]) + (sum[2] + sum[3]);
  for (; i < a.size(); ++i) total += a[i] * b[i];
  return total;
}

// y += factor * x
inline void add_scaled(Out y, double factor, In x) {
  lanes::Four sum, term;
  std::size_t i = 0;
  for (; i + lanes::kCount <= y.size(); i += lanes::kCount) {
    lanes::load(sum, &y[i]);
    lanes::load(term, &x[i]);
    lanes::store(&y[i], sum + factor * term);
  }
  for (; i < y.size(); ++i) y[i] += factor * x[i];
}

}  // namespace motley::moe::gate
