// comm/launch.cuh: the only way in which kernels are started, so that the same .cu file also
// runs in the emulator of the tests, which brings a cuda_runtime.h of its own.
#pragma once

#include <cuda_runtime.h>

#include <string>
#include <utility>

#include "comm/device.h"
#include "comm/error.h"

namespace motley {

struct LaunchShape {
  dim3 grid = 1;
  dim3 block = 1;
  std::size_t shared_bytes = 0;  // what dynamic_shared() points to
};

// The shared memory of this block that its launch asked for; at a multiple of 16 bytes.
template <class T>
__device__ T* dynamic_shared() {
  alignas(16) extern __shared__ std::byte dynamic_shared_bytes[];
  return reinterpret_cast<T*>(dynamic_shared_bytes);
}

// Blocks of `block` threads for n elements, few enough to loop over the rest.
inline unsigned blocks_for(std::size_t n, unsigned block) {
  constexpr std::size_t kMostBlocks = 2048;
  const std::size_t blocks = (n + block - 1) / block;
  return static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
}

// Throws kIo, naming CUDA's error, if the launch is refused.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const LaunchShape& shape, StreamRef stream,
            Arguments&&... arguments) {
  constexpr std::size_t kSharedBytesUnasked = 48 * 1024;
  const cudaLaunchConfig_t config{shape.grid,
                                  shape.block,
                                  shape.shared_bytes,
                                  static_cast<cudaStream_t>(stream.handle),
                                  nullptr,
                                  0};
  cudaError_t status = cudaSuccess;
  if (shape.shared_bytes > kSharedBytesUnasked) {
    status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(shape.shared_bytes));
  }
  if (status == cudaSuccess)
    status = cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
  if (status == cudaSuccess) return;
  const auto size = [](dim3 d) {
    return std::to_string(d.x) + "x" + std::to_string(d.y) + "x" + std::to_string(d.z);
  };
  throw Error(ErrorCode::kIo, std::string("CUDA: ") + cudaGetErrorString(status) +
                                  " while launching a kernel of " + size(shape.grid) +
                                  " blocks of " + size(shape.block) + " threads with " +
                                  std::to_string(shape.shared_bytes) + " shared bytes.");
}

}  // namespace motley
