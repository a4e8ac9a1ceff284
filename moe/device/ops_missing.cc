// moe/device/expert_ops.h in a build without CUDA.
#include "comm/error.h"
#include "moe/device/expert_ops.h"

namespace motley::moe {
namespace {

[[noreturn]] void unavailable() {
  throw Error(ErrorCode::kUnavailable,
              "CUDA is not in this build. Configure with -DMOTLEY_CUDA=ON, or use the CPU.");
}

}  // namespace

void activate_on_device(DType, const DeviceSegments&, const DeviceHidden&, StreamRef) {
  unavailable();
}
void activation_gradient_on_device(DType, const DeviceSegments&, const DeviceHidden&, StreamRef) {
  unavailable();
}
void add_output_bias_on_device(DType, const DeviceSegments&, void*, std::size_t, StreamRef) {
  unavailable();
}
void sum_columns_on_device(DType, const DeviceSegments&, const DeviceColumnSums&, StreamRef) {
  unavailable();
}
void clear_on_device(void*, std::size_t, StreamRef) { unavailable(); }

}  // namespace motley::moe
