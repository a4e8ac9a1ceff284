// test/support/cublas_stand_in.h: cuBLAS without a device, for tests that link
// motley_moe_device_emulated: grouped products of emulated device memory, in stream order. It
// refuses what cuBLAS refuses, and also pointers that cuBLAS would follow to nowhere: tables of
// matrices that are not in device memory. It knows nothing of speed, nor of the order in which a
// device adds.
#pragma once

#include <cstdint>

namespace motley::test {

struct CublasUse {
  std::int64_t calls = 0;     // of grouped products
  std::int64_t products = 0;  // in them
  std::int64_t handles = 0;   // that are open
};
CublasUse cublas_use();

// The next call of grouped products fails, as on a device that is lost.
void fail_next_product();

}  // namespace motley::test
