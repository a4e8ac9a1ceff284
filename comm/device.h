// comm/device.h: device memory and streams, as owners and borrowers.
//
//   if (device_count() > 0) {
//     DeviceBuffer buffer(bytes);
//     copy(buffer.view(n, DType::kFloat32), host, StreamRef{});
//   }
//
// Every call throws kUnavailable in a build without CUDA, and kIo with CUDA's own text where CUDA
// fails.
#pragma once

#include <cstddef>

#include "comm/view.h"

namespace motley {

// Devices that this process can use: 0 without CUDA, without a driver, without a device.
int device_count() noexcept;

// A borrowed cudaStream_t; null is the default stream.
struct StreamRef {
  void* handle = nullptr;
};

// Waits until everything in `stream` is done.
void synchronize(StreamRef stream);

// Device memory, owned.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::size_t size_bytes);
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;
  ~DeviceBuffer();

  std::size_t size_bytes() const noexcept { return size_bytes_; }
  // The first `count` elements.
  View view(std::size_t count, DType dtype) const noexcept {
    return {static_cast<std::byte*>(data_), count, dtype, Memory::kDevice};
  }

 private:
  void* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

// Copies in.size_bytes() bytes between any two memories, in stream order. Same size on both sides.
void copy(View out, ConstView in, StreamRef stream);

}  // namespace motley
