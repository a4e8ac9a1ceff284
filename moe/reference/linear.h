// moe/reference/linear.h: row-major matrix times vector and its two gradients, as plain loops.
#pragma once

#include <cstddef>
#include <span>

namespace motley::moe::reference {

using In = std::span<const double>;
using Out = std::span<double>;

// Row `i` of a matrix with `columns` columns.
inline In row(In matrix, std::size_t i, std::size_t columns) {
  return matrix.subspan(i * columns, columns);
}
inline Out row(Out matrix, std::size_t i, std::size_t columns) {
  return matrix.subspan(i * columns, columns);
}

inline double dot(In a, In b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// y += a * x
inline void add_scaled(Out y, double a, In x) {
  for (std::size_t i = 0; i < x.size(); ++i) y[i] += a * x[i];
}

// y += M x, with M [y.size(), x.size()].
inline void add_product(Out y, In matrix, In x) {
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += dot(row(matrix, i, x.size()), x);
}

// dx += M^T dy
inline void add_transposed_product(Out dx, In matrix, In dy) {
  for (std::size_t i = 0; i < dy.size(); ++i) add_scaled(dx, dy[i], row(matrix, i, dx.size()));
}

// dM += dy x^T
inline void add_outer(Out dmatrix, In dy, In x) {
  for (std::size_t i = 0; i < dy.size(); ++i) add_scaled(row(dmatrix, i, x.size()), dy[i], x);
}

}  // namespace motley::moe::reference
