// moe/expert/products.h: products of row-major float matrices in the calling thread: OpenBLAS where
// the build has it, our own loops (kernels.h) for few rows, where it has not, and where they have
// vectors of 512 bits. Which of them depends on the processor and on sizes alone, so equal calls
// give equal bits.
#pragma once

#include "moe/expert/kernels.h"

namespace motley::moe::expert {

// out [rows, columns] = a [rows, inner] b^T, with b [columns, inner].
void multiply_by_transposed(const Product& p);
// out [rows, columns] = a b, with b [inner, columns]; a as p.a_row and p.a_term lay it: one of them
// is 1.
void multiply(const Product& p);

// From here on OpenBLAS uses the threads that call it and no others, in the whole process.
void use_callers_threads();

}  // namespace motley::moe::expert
