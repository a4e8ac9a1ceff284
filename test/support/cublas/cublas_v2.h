// The part of cuBLAS's interface that moe uses, for tests that link the stand-in
// (cublas_stand_in.h) instead of cuBLAS. Names and meanings are cuBLAS's, values our own.
#pragma once

using cudaStream_t = struct CUstream_st*;

struct cublasContext;
using cublasHandle_t = cublasContext*;

enum cublasStatus_t {
  CUBLAS_STATUS_SUCCESS,
  CUBLAS_STATUS_NOT_INITIALIZED,
  CUBLAS_STATUS_INVALID_VALUE,
  CUBLAS_STATUS_NOT_SUPPORTED,
  CUBLAS_STATUS_EXECUTION_FAILED,
};
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C };
enum cudaDataType_t { CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF, CUDA_R_64F };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_COMPUTE_64F };

extern "C" {
cublasStatus_t cublasCreate(cublasHandle_t* handle);
cublasStatus_t cublasDestroy(cublasHandle_t handle);
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream);
const char* cublasGetStatusString(cublasStatus_t status);
cublasStatus_t cublasGemmGroupedBatchedEx(
    cublasHandle_t handle, const cublasOperation_t* transa_array,
    const cublasOperation_t* transb_array, const int* m_array, const int* n_array,
    const int* k_array, const void* alpha_array, const void* const* a_array, cudaDataType_t a_type,
    const int* lda_array, const void* const* b_array, cudaDataType_t b_type, const int* ldb_array,
    const void* beta_array, void* const* c_array, cudaDataType_t c_type, const int* ldc_array,
    int group_count, const int* group_size, cublasComputeType_t compute_type);
}
