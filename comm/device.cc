#include "comm/device.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cassert>
#include <utility>

#include "comm/error.h"

namespace motley {
namespace {

void check(cudaError_t status, const std::string& doing) {
  if (status == cudaSuccess) return;
  throw Error(ErrorCode::kIo, fmt::format("CUDA: {} ({}) while {}.", cudaGetErrorString(status),
                                          static_cast<int>(status), doing));
}

}  // namespace

int device_count() noexcept {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

void synchronize(StreamRef stream) {
  check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream.handle)), "waiting for a stream");
}

DeviceBuffer::DeviceBuffer(std::size_t size_bytes) : size_bytes_(size_bytes) {
  if (size_bytes == 0) return;
  check(cudaMalloc(&data_, size_bytes), fmt::format("allocating {} bytes", size_bytes));
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

DeviceBuffer::~DeviceBuffer() { cudaFree(data_); }

void copy(View out, ConstView in, StreamRef stream) {
  assert(out.size_bytes() == in.size_bytes());
  if (in.count == 0) return;
  check(cudaMemcpyAsync(out.data, in.data, in.size_bytes(), cudaMemcpyDefault,
                        static_cast<cudaStream_t>(stream.handle)),
        fmt::format("copying {} bytes", in.size_bytes()));
}

}  // namespace motley
