// moe/device/grouped_products.h: products of many pairs of matrices at once, of any sizes, by
// cublasGemmGroupedBatchedEx. No cuBLAS type leaves grouped_products.cc.
#pragma once

#include <memory>
#include <span>

#include "comm/device.h"
#include "comm/dtype.h"

namespace motley::moe {

// out [rows, columns] of matrices in device memory, row after row without gaps.
struct DeviceProduct {
  std::size_t rows = 0, columns = 0, inner = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  void* out = nullptr;
};

enum class ProductForm : std::uint8_t {
  kPlain,             // a [rows, inner], b [inner, columns]
  kSecondTransposed,  // b [columns, inner]
  kFirstTransposed,   // a [inner, rows]
};
enum class ProductInto : std::uint8_t { kReplace, kAdd };

struct ProductKind {
  ProductForm form = ProductForm::kPlain;
  ProductInto into = ProductInto::kReplace;
  DType dtype = DType::kFloat32;  // of all matrices
};

class GroupedProducts {
 public:
  // On the current device. Throws kUnavailable without cuBLAS in the build, kIo if it cannot start.
  GroupedProducts();
  ~GroupedProducts();
  GroupedProducts(GroupedProducts&&) noexcept;

  // In stream order. Outputs do not overlap; products with a size of 0 are left out.
  //   errors  kInvalid for a size beyond an int; kIo with what cuBLAS says
  void multiply(std::span<const DeviceProduct> products, const ProductKind& kind, StreamRef stream);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace motley::moe
