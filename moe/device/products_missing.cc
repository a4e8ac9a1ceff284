// moe/device/grouped_products.h in a build without cuBLAS.
#include "comm/error.h"
#include "moe/device/grouped_products.h"

namespace motley::moe {
namespace {

[[noreturn]] void unavailable() {
  throw Error(ErrorCode::kUnavailable,
              "cuBLAS is not in this build. Install CUDA with it and configure with "
              "-DMOTLEY_CUDA=ON, or use the CPU.");
}

}  // namespace

struct GroupedProducts::Impl {};
GroupedProducts::GroupedProducts() { unavailable(); }
GroupedProducts::~GroupedProducts() = default;
GroupedProducts::GroupedProducts(GroupedProducts&&) noexcept = default;
void GroupedProducts::multiply(std::span<const DeviceProduct>, const ProductKind&, StreamRef) {
  unavailable();
}

}  // namespace motley::moe
