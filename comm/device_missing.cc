// comm/device.h in a build without CUDA.
#include "comm/device.h"
#include "comm/error.h"
#include "comm/kernel/reduce.h"

namespace motley {
namespace {

[[noreturn]] void unavailable() {
  throw Error(ErrorCode::kUnavailable,
              "CUDA is not in this build. Configure with -DMOTLEY_CUDA=ON, or use host memory.");
}

}  // namespace

int device_count() noexcept { return 0; }
void synchronize(StreamRef) { unavailable(); }
DeviceBuffer::DeviceBuffer(std::size_t) { unavailable(); }
DeviceBuffer::DeviceBuffer(DeviceBuffer&&) noexcept = default;
DeviceBuffer::~DeviceBuffer() = default;
void copy(View, ConstView, StreamRef) { unavailable(); }

void reduce_on_device(View, ConstView, ReduceOp, StreamRef) { unavailable(); }
void divide_on_device(View, int, StreamRef) { unavailable(); }

}  // namespace motley
