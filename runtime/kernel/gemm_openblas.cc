// The products of gemm.h by OpenBLAS.
#include <cblas.h>

#include <algorithm>
#include <cassert>
#include <limits>

#include "runtime/gemm.h"

namespace motley::runtime {
namespace {

blasint narrow(std::size_t n) {
  assert(n <= static_cast<std::size_t>(std::numeric_limits<blasint>::max()));
  return static_cast<blasint>(n);
}

// By the type of elements.
constexpr auto cblas_gemm(float /*element*/) { return cblas_sgemm; }
constexpr auto cblas_gemm(double /*element*/) { return cblas_dgemm; }

}  // namespace

template <class T>
void multiply(const Factor<T>& a, const Factor<T>& b, T* out, Into into) {
  assert(a.product_columns() == b.product_rows());
  const auto form = [](const Factor<T>& f) { return f.transposed ? CblasTrans : CblasNoTrans; };
  // Leading dimensions of at least 1, as BLAS wants them, for matrices without columns.
  const auto leading = [](std::size_t columns) {
    return narrow(std::max<std::size_t>(columns, 1));
  };
  cblas_gemm(T{})(CblasRowMajor, form(a), form(b), narrow(a.product_rows()),
                  narrow(b.product_columns()), narrow(a.product_columns()), T{1}, a.data,
                  leading(a.columns), b.data, leading(b.columns), into == Into::kAdd ? T{1} : T{0},
                  out, leading(b.product_columns()));
}

template void multiply(const Factor<float>&, const Factor<float>&, float*, Into);
template void multiply(const Factor<double>&, const Factor<double>&, double*, Into);

void use_one_thread_for_products() {
  if (openblas_get_num_threads() != 1) openblas_set_num_threads(1);
}

}  // namespace motley::runtime
