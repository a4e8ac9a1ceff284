// test/support/simt/launch.h: the part of CUDA's runtime that comm/launch.cuh uses, and
// what a thread knows of its place in the grid.
#pragma once

#include <cstddef>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "test/support/simt/types.h"

namespace motley::simt {

// A kernel with its arguments, as they were at the launch. `parameters` is where these lie.
struct Call {
  virtual ~Call() = default;
  virtual void run() const = 0;
  const void* kernel = nullptr;
  const void* parameters = nullptr;
  std::size_t parameter_bytes = 0;
};

template <class... Parameters>
struct CallOf final : Call {
  template <class... Arguments>
  explicit CallOf(void (*function_)(Parameters...), Arguments&&... given)
      : function(function_), arguments(std::forward<Arguments>(given)...) {
    kernel = reinterpret_cast<const void*>(function_);
    parameters = this;
    parameter_bytes = sizeof *this;
  }
  void run() const override { std::apply(function, arguments); }

  void (*function)(Parameters...);
  std::tuple<std::remove_cv_t<Parameters>...> arguments;
};

struct Shape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;
};

// As much as a device of sm_90 gives a block.
inline constexpr std::size_t kMostSharedBytes = std::size_t{227} << 10;
inline constexpr unsigned kMostThreads = 1024;

// Puts the kernel into the stream, null being the default one. False where a device would refuse
// the shape.
bool enqueue(void* stream, const Shape& shape, std::unique_ptr<Call> call);

// Of the thread that runs.
uint3 thread_index() noexcept;
uint3 block_index() noexcept;
dim3 block_shape() noexcept;
dim3 grid_shape() noexcept;

}  // namespace motley::simt

// NOLINTBEGIN: the names are CUDA's

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidConfiguration = 9 };
using cudaStream_t = struct CUstream_st*;

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  void* attrs = nullptr;
  unsigned numAttrs = 0;
};

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel*, cudaFuncAttribute, int) {
  return cudaSuccess;
}

inline const char* cudaGetErrorString(cudaError_t status) {
  return status == cudaSuccess ? "no error" : "invalid configuration argument";
}

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  auto call = std::make_unique<motley::simt::CallOf<Parameters...>>(
      kernel, std::forward<Arguments>(arguments)...);
  const motley::simt::Shape shape{config->gridDim, config->blockDim, config->dynamicSmemBytes};
  return motley::simt::enqueue(config->stream, shape, std::move(call))
             ? cudaSuccess
             : cudaErrorInvalidConfiguration;
}

// After the members of the same names.
#define threadIdx (::motley::simt::thread_index())
#define blockIdx (::motley::simt::block_index())
#define blockDim (::motley::simt::block_shape())
#define gridDim (::motley::simt::grid_shape())
inline constexpr int warpSize = 32;

// NOLINTEND
