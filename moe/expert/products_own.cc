// The products of products.h in our own loops, for builds without OpenBLAS.
#include "moe/expert/products.h"

namespace motley::moe::expert {

void multiply_by_transposed(const Product& p) { kernels().dots(p); }
void multiply(const Product& p) { kernels().sums(p); }
void use_callers_threads() {}  // there are no others

}  // namespace motley::moe::expert
