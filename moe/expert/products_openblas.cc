// The products of products.h by OpenBLAS, but for few rows and wide vectors.
#include <cblas.h>

#include <algorithm>
#include <mutex>

#include "moe/expert/products.h"

namespace motley::moe::expert {
namespace {

// Whether our own loops do it. With vectors of 512 bits they are as fast as OpenBLAS at any size
// where it has them too, and twice as fast where it takes this processor for an older one. With
// narrower ones OpenBLAS is faster from about so many rows, or terms of a sum, on: below, copying a
// matrix, as it does first, costs more than the arithmetic.
constexpr std::size_t kFew = 8;
bool is_own(std::size_t rows) { return rows <= kFew || kernels().bits == 512; }

blasint narrow(std::size_t n) { return static_cast<blasint>(n); }
blasint leading(std::size_t stride) { return narrow(std::max<std::size_t>(stride, 1)); }
float beta(const Product& p) { return p.into == Into::kAdd ? 1.0f : 0.0f; }

}  // namespace

void multiply_by_transposed(const Product& p) {
  if (is_own(p.rows)) return kernels().dots(p);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, narrow(p.rows), narrow(p.columns),
              narrow(p.inner), 1, p.a, leading(p.a_row), p.b, leading(p.b_row), beta(p), p.out,
              leading(p.out_row));
}

void multiply(const Product& p) {
  if (is_own(std::min(p.rows, p.inner))) return kernels().sums(p);
  const bool transposed = p.a_term != 1;
  cblas_sgemm(CblasRowMajor, transposed ? CblasTrans : CblasNoTrans, CblasNoTrans, narrow(p.rows),
              narrow(p.columns), narrow(p.inner), 1, p.a, leading(transposed ? p.a_term : p.a_row),
              p.b, leading(p.b_row), beta(p), p.out, leading(p.out_row));
}

void use_callers_threads() {
  // OpenBLAS rebuilds its threads when the number is set: one caller at a time, and only once.
  static std::once_flag once;
  std::call_once(once, [] {
    if (openblas_get_num_threads() != 1) openblas_set_num_threads(1);
  });
}

}  // namespace motley::moe::expert
