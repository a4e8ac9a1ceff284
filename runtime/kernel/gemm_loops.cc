// The products of gemm.h in plain loops, for builds without OpenBLAS.
#include <algorithm>
#include <cassert>

#include "runtime/gemm.h"

namespace motley::runtime {

template <class T>
void multiply(const Factor<T>& a, const Factor<T>& b, T* out, Into into) {
  assert(a.product_columns() == b.product_rows());
  const std::size_t columns = b.product_columns();
  const auto at = [](const Factor<T>& f, std::size_t i, std::size_t j) {
    return f.transposed ? f.data[j * f.columns + i] : f.data[i * f.columns + j];
  };
  for (std::size_t i = 0; i < a.product_rows(); ++i) {
    T* const row = out + i * columns;
    if (into == Into::kReplace) std::fill(row, row + columns, T{0});
    for (std::size_t k = 0; k < a.product_columns(); ++k) {
      const T factor = at(a, i, k);
      for (std::size_t j = 0; j < columns; ++j) row[j] += factor * at(b, k, j);
    }
  }
}

template void multiply(const Factor<float>&, const Factor<float>&, float*, Into);
template void multiply(const Factor<double>&, const Factor<double>&, double*, Into);

void use_one_thread_for_products() {}  // these loops have no other

}  // namespace motley::runtime
