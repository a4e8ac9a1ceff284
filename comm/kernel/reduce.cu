// Device half of reduce.h. Memory-bound: reduce reads 2n and writes n elements, no reuse.
#include "comm/kernel/launch.cuh"
#include "comm/kernel/ops.h"
#include "comm/kernel/reduce.h"

namespace motley {
namespace {

constexpr int kThreads = 256;

template <class T, class Op>
__global__ void __launch_bounds__(kThreads)
    reduce_kernel(T* __restrict__ out, const T* __restrict__ in, std::size_t n, Op op) {
  const std::size_t stride = std::size_t{gridDim.x} * kThreads;
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += stride) {
    out[i] = op(out[i], in[i]);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) divide_kernel(T* data, std::size_t n, int divisor) {
  const std::size_t stride = std::size_t{gridDim.x} * kThreads;
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += stride) {
    data[i] = divided(data[i], divisor);
  }
}

}  // namespace

void reduce_on_device(View out, ConstView in, ReduceOp op, StreamRef stream) {
  if (out.count == 0) return;  // an empty grid is a launch error
  dispatch(out.dtype, op, [&]<class T>(auto op_fn) {
    launch(reduce_kernel<T, decltype(op_fn)>,
           {.grid = blocks_for(out.count, kThreads), .block = kThreads}, stream, out.as<T>().data(),
           in.as<const T>().data(), out.count, op_fn);
  });
}

void divide_on_device(View data, int divisor, StreamRef stream) {
  if (data.count == 0) return;
  dispatch(data.dtype, [&]<class T>() {
    launch(divide_kernel<T>, {.grid = blocks_for(data.count, kThreads), .block = kThreads}, stream,
           data.as<T>().data(), data.count, divisor);
  });
}

}  // namespace motley
