#include "test/support/cublas_stand_in.h"

#include <cublas_v2.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "comm/device.h"
#include "comm/dtype.h"
#include "test/support/device_emulated.h"

struct cublasContext {
  cudaStream_t stream = nullptr;
};

namespace motley::test {
namespace {

std::atomic<std::int64_t> calls = 0, products = 0, handles = 0;
std::atomic<bool> fails = false;

// One product, column after column.
struct Gemm {
  cublasOperation_t turns_a, turns_b;
  int m, n, k;
  float alpha, beta;
  const void* const* a;  // places in the tables of device memory
  const void* const* b;
  void* const* c;
  int lda, ldb, ldc;
};

int columns_of(cublasOperation_t turns, int as_is, int turned) {
  return turns == CUBLAS_OP_N ? as_is : turned;
}

bool is_valid(const Gemm& g) {
  const bool sizes = g.m >= 0 && g.n >= 0 && g.k >= 0;
  return sizes && g.lda >= std::max(1, columns_of(g.turns_a, g.m, g.k)) &&
         g.ldb >= std::max(1, columns_of(g.turns_b, g.k, g.n)) && g.ldc >= std::max(1, g.m);
}

template <class T>
void run(const Gemm& g) {
  const T* const a = static_cast<const T*>(*g.a);
  const T* const b = static_cast<const T*>(*g.b);
  T* const c = static_cast<T*>(*g.c);
  const auto at = [](int row, int column, int step) {
    return static_cast<std::size_t>(column) * static_cast<std::size_t>(step) +
           static_cast<std::size_t>(row);
  };
  for (int j = 0; j < g.n; ++j) {
    for (int i = 0; i < g.m; ++i) {
      float sum = 0;
      for (int p = 0; p < g.k; ++p) {
        const T x = a[g.turns_a == CUBLAS_OP_N ? at(i, p, g.lda) : at(p, i, g.lda)];
        const T y = b[g.turns_b == CUBLAS_OP_N ? at(p, j, g.ldb) : at(j, p, g.ldb)];
        sum += static_cast<float>(x) * static_cast<float>(y);
      }
      T& out = c[at(i, j, g.ldc)];
      // What is not to be added to is not read: it may be anything.
      out = static_cast<T>(g.beta == 0 ? g.alpha * sum
                                       : g.alpha * sum + g.beta * static_cast<float>(out));
    }
  }
}

void run(const std::vector<Gemm>& gemms, cudaDataType_t type) {
  for (const Gemm& gemm : gemms) {
    if (type == CUDA_R_16F) {
      run<half>(gemm);
    } else if (type == CUDA_R_16BF) {
      run<bfloat16>(gemm);
    } else {
      run<float>(gemm);
    }
  }
}

}  // namespace

CublasUse cublas_use() { return {calls, products, handles}; }
void fail_next_product() { fails = true; }

}  // namespace motley::test

using namespace motley::test;

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  if (motley::device_count() == 0) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = std::make_unique<cublasContext>().release();  // to who asked for it
  ++handles;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  const std::unique_ptr<cublasContext> owned(handle);
  --handles;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "the library was not initialized";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an invalid value was passed";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the operation is not supported";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "execution failed";
  }
  return "?";
}

cublasStatus_t cublasGemmGroupedBatchedEx(
    cublasHandle_t handle, const cublasOperation_t* transa_array,
    const cublasOperation_t* transb_array, const int* m_array, const int* n_array,
    const int* k_array, const void* alpha_array, const void* const* a_array, cudaDataType_t a_type,
    const int* lda_array, const void* const* b_array, cudaDataType_t b_type, const int* ldb_array,
    const void* beta_array, void* const* c_array, cudaDataType_t c_type, const int* ldc_array,
    int group_count, const int* group_size, cublasComputeType_t compute_type) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (group_count < 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (compute_type != CUBLAS_COMPUTE_32F || a_type == CUDA_R_64F || a_type != b_type ||
      a_type != c_type) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  for (const void* table : {static_cast<const void*>(a_array), static_cast<const void*>(b_array),
                            static_cast<const void*>(c_array)}) {
    if (motley::memory_of(table) != motley::Memory::kDevice) return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (fails.exchange(false)) return CUBLAS_STATUS_EXECUTION_FAILED;
  const auto* const alpha = static_cast<const float*>(alpha_array);
  const auto* const beta = static_cast<const float*>(beta_array);
  std::vector<Gemm> gemms;
  std::size_t place = 0;
  for (int g = 0; g < group_count; ++g) {
    const Gemm one{transa_array[g], transb_array[g], m_array[g],  n_array[g], k_array[g],
                   alpha[g],        beta[g],         nullptr,     nullptr,    nullptr,
                   lda_array[g],    ldb_array[g],    ldc_array[g]};
    if (!is_valid(one) || group_size[g] < 0) return CUBLAS_STATUS_INVALID_VALUE;
    for (int i = 0; i < group_size[g]; ++i, ++place) {
      gemms.push_back(one);
      gemms.back().a = a_array + place;
      gemms.back().b = b_array + place;
      gemms.back().c = c_array + place;
    }
  }
  ++calls;
  products += static_cast<std::int64_t>(gemms.size());
  enqueue({handle->stream}, [gemms, a_type] {
    run(gemms, a_type);
    return true;
  });
  return CUBLAS_STATUS_SUCCESS;
}
