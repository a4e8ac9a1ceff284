// runtime/gemm.h: products of row-major matrices, in the calling thread. Two implementations, of
// which a build has one: OpenBLAS, and plain loops.
//
//   multiply<float>({a, 3, 5}, transposed(Factor<float>{b, 4, 5}), out, Into::kReplace);  // a b^T
//   [3, 4]
#pragma once

#include <cstddef>
#include <cstdint>

namespace motley::runtime {

// As it lies in memory; `transposed` tells how it enters the product.
template <class T>
struct Factor {
  const T* data = nullptr;
  std::size_t rows = 0;
  std::size_t columns = 0;
  bool transposed = false;

  std::size_t product_rows() const noexcept { return transposed ? columns : rows; }
  std::size_t product_columns() const noexcept { return transposed ? rows : columns; }
};

template <class T>
Factor<T> transposed(Factor<T> factor) {
  factor.transposed = !factor.transposed;
  return factor;
}

enum class Into : std::uint8_t { kReplace, kAdd };

// out [a.product_rows() * b.product_columns()] becomes a b, or has it added. Overlaps neither.
// Zero rows, columns or terms are fine.
template <class T>
void multiply(const Factor<T>& a, const Factor<T>& b, T* out, Into into);

// From here on products use one thread. Of the whole process, where OpenBLAS has threads.
void use_one_thread_for_products();

}  // namespace motley::runtime
