// wide/device/kernels.h in a build without CUDA.
#include "comm/error.h"
#include "wide/device/kernels.h"

namespace motley::wide {
namespace {

[[noreturn]] void unavailable() {
  throw Error(ErrorCode::kUnavailable,
              "CUDA is not in this build. Configure with -DMOTLEY_CUDA=ON, or use the CPU.");
}

}  // namespace

void forward_on_device(const DeviceJob&, const BatchArrays&, const DeviceSums&, StreamRef,
                       unsigned) {
  unavailable();
}
void update_on_device(const DeviceJob&, const BatchArrays&, const DeviceSums&, StreamRef,
                      unsigned) {
  unavailable();
}
void update_shared_on_device(const DeviceJob&, std::uint32_t, const DeviceSums&, double*,
                             StreamRef) {
  unavailable();
}
std::size_t flow_shared_bytes(const DeviceState&, const FlowShape&) noexcept { return 0; }
FlowShape flow_shape(const DeviceJob&, std::uint32_t, std::size_t, bool) { unavailable(); }
unsigned blocks_after(const FlowShape&, std::uint64_t) noexcept { return 0; }
void flow_on_device(const DeviceJob&, const BatchArrays&, const FlowShape&, double*, StreamRef) {
  unavailable();
}

}  // namespace motley::wide
