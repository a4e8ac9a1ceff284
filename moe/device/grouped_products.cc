#include "moe/device/grouped_products.h"

#include <cublas_v2.h>
#include <fmt/format.h>

#include <limits>
#include <vector>

#include "comm/error.h"
#include "moe/device/upload.h"

namespace motley::moe {
namespace {

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorCode::kIo,
              fmt::format("cuBLAS: {} ({}) while {}.", cublasGetStatusString(status),
                          static_cast<int>(status), what));
}

cudaDataType_t type_of(DType dtype) {
  if (dtype == DType::kFloat16) return CUDA_R_16F;
  if (dtype == DType::kBFloat16) return CUDA_R_16BF;
  return CUDA_R_32F;
}

int size_of(std::size_t n) {
  if (n <= static_cast<std::size_t>(std::numeric_limits<int>::max())) return static_cast<int>(n);
  throw Error(ErrorCode::kInvalid,
              fmt::format("moe experts: a matrix has a side of {}, cuBLAS takes at most {}. Split "
                          "the batch.",
                          n, std::numeric_limits<int>::max()));
}

// What cuBLAS takes of each group, which is one product: matrices column after column, so that ours
// are their own transposes, and the product is b' a'.
struct Groups {
  std::vector<cublasOperation_t> of_first, of_second;
  std::vector<int> m, n, k, first_step, second_step, out_step, size;
  std::vector<float> one, before;
  std::vector<const void*> pointers;  // all first matrices, then all second ones, then all outputs

  int count() const { return static_cast<int>(m.size()); }
};

Groups groups_of(std::span<const DeviceProduct> products, const ProductKind& kind) {
  Groups g;
  std::vector<const void*> second, out;
  for (const DeviceProduct& p : products) {
    if (p.rows == 0 || p.columns == 0 || p.inner == 0) continue;
    const int rows = size_of(p.rows), columns = size_of(p.columns), inner = size_of(p.inner);
    const bool turns_b = kind.form == ProductForm::kSecondTransposed;
    const bool turns_a = kind.form == ProductForm::kFirstTransposed;
    g.of_first.push_back(turns_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    g.of_second.push_back(turns_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    g.m.push_back(columns);
    g.n.push_back(rows);
    g.k.push_back(inner);
    g.first_step.push_back(turns_b ? inner : columns);
    g.second_step.push_back(turns_a ? rows : inner);
    g.out_step.push_back(columns);
    g.size.push_back(1);
    g.one.push_back(1);
    g.before.push_back(kind.into == ProductInto::kAdd ? 1.0f : 0.0f);
    g.pointers.push_back(p.b);
    second.push_back(p.a);
    out.push_back(p.out);
  }
  g.pointers.insert(g.pointers.end(), second.begin(), second.end());
  g.pointers.insert(g.pointers.end(), out.begin(), out.end());
  return g;
}

}  // namespace

struct GroupedProducts::Impl {
  Impl() { check(cublasCreate(&handle), "starting"); }
  ~Impl() { cublasDestroy(handle); }

  cublasHandle_t handle = nullptr;
  Uploads uploads;
};

GroupedProducts::GroupedProducts() : impl_(std::make_unique<Impl>()) {}
GroupedProducts::~GroupedProducts() = default;
GroupedProducts::GroupedProducts(GroupedProducts&&) noexcept = default;

void GroupedProducts::multiply(std::span<const DeviceProduct> products, const ProductKind& kind,
                               StreamRef stream) {
  const Groups g = groups_of(products, kind);
  if (g.count() == 0) return;
  const auto* const pointers = reinterpret_cast<const void* const*>(
      impl_->uploads.put(std::as_bytes(std::span(g.pointers)), stream));
  const cudaDataType_t type = type_of(kind.dtype);
  check(cublasSetStream(impl_->handle, static_cast<cudaStream_t>(stream.handle)),
        "choosing a stream");
  check(cublasGemmGroupedBatchedEx(impl_->handle, g.of_first.data(), g.of_second.data(), g.m.data(),
                                   g.n.data(), g.k.data(), g.one.data(), pointers, type,
                                   g.first_step.data(), pointers + g.count(), type,
                                   g.second_step.data(), g.before.data(),
                                   const_cast<void* const*>(pointers + 2 * g.count()), type,
                                   g.out_step.data(), g.count(), g.size.data(), CUBLAS_COMPUTE_32F),
        "multiplying");
  impl_->uploads.used(stream);
}

}  // namespace motley::moe
