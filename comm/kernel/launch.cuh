// comm/kernel/launch.cuh: the only way in which kernels are started, so that the same .cu file can
// also run against an emulator on the CPU.
#pragma once

#include <cuda_runtime.h>

#include <string>
#include <utility>

#include "comm/device.h"
#include "comm/error.h"

namespace motley {

struct LaunchShape {
  unsigned grid = 1;
  unsigned block = 1;
  std::size_t shared_bytes = 0;
};

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
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(shape.grid);
  config.blockDim = dim3(shape.block);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream.handle);
  const cudaError_t status =
      cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
  if (status == cudaSuccess) return;
  throw Error(ErrorCode::kIo, std::string("CUDA: ") + cudaGetErrorString(status) +
                                  " while launching a kernel of " + std::to_string(shape.grid) +
                                  " blocks of " + std::to_string(shape.block) + " threads.");
}

}  // namespace motley
