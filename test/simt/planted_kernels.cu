#include <cooperative_groups.h>
#include <cuda_fp16.h>

#include "comm/kernel/tiles.cuh"
#include "comm/launch.cuh"
#include "test/simt/planted_kernels.h"

namespace motley::test {
namespace {

constexpr unsigned kThreads = kPlantedThreads;
constexpr unsigned kAll = 0xffffffffu;

__global__ void neighbours_kernel(float* data, bool planted) {
  __shared__ float all[kThreads];
  const unsigned i = threadIdx.x;
  all[i] = data[i];
  if (!planted) __syncthreads();
  data[i] = all[(i + 1) % kThreads];
}

__global__ void lanes_kernel(float* data, bool planted) {
  __shared__ float all[kThreads];
  const unsigned i = threadIdx.x;
  all[i] = data[i];
  if (!planted) __syncwarp();
  data[i] = all[i ^ 1];
}

__global__ void add_kernel(float* data, bool planted) {
  if (threadIdx.x != 0) return;
  if (planted) {
    data[0] += 1;
  } else {
    atomicAdd(data, 1.0f);
  }
}

// data[0] counts the blocks, each of which leaves its number.
__global__ void last_kernel(float* data, bool planted) {
  if (threadIdx.x != 0) return;
  data[1 + blockIdx.x] = static_cast<float>(blockIdx.x);
  if (!planted) __threadfence();
  if (atomicAdd(data, 1.0f) != static_cast<float>(gridDim.x - 1)) return;
  float sum = 0;
  for (unsigned i = 0; i < gridDim.x; ++i) sum += data[1 + i];
  data[0] = 0;
  data[1 + gridDim.x] = sum;
}

__global__ void reads_meets_adds_kernel(float* data) {
  if (threadIdx.x == 0) data[1 + blockIdx.x] = data[0];
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(data, 1.0f);
}

__global__ void four_kernel(float4* data) { atomicAdd(data, make_float4(1, 2, 3, 4)); }

__global__ void some_kernel(float* data, bool planted) {
  const bool waits = !planted || threadIdx.x + 1 < blockDim.x;
  if (waits) __syncthreads();
  data[threadIdx.x] = __shfl_sync(kAll, data[threadIdx.x], 0);
}

__global__ void return_kernel(float* data, bool planted) {
  if (planted && threadIdx.x >= kThreads / 2) return;
  __syncthreads();
  data[threadIdx.x] = 1;
}

__global__ void two_kernel(float* data, bool planted) {
  if (planted && threadIdx.x % 2 == 0) {
    __syncthreads();
    data[threadIdx.x] = 1;
  } else {
    __syncthreads();
    data[threadIdx.x] = 2;
  }
}

__global__ void half_kernel(float* data, bool planted) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned own = lane < 16 ? (planted ? kAll : 0xffffu) : 0xffff0000u;
  data[threadIdx.x] = __shfl_xor_sync(own, data[threadIdx.x], 1);
}

__global__ void self_kernel(float* data, bool planted) {
  const unsigned mask = planted ? kAll - 1 : kAll;
  data[threadIdx.x] = static_cast<float>(__ballot_sync(mask, 1));
}

__global__ void group_kernel(float* data, bool planted) {
  if (threadIdx.x % 2 == 0) return;
  const auto group = cooperative_groups::coalesced_threads();
  if (planted && group.thread_rank() == 3) return;
  data[threadIdx.x] = static_cast<float>(group.ballot(1));
}

__global__ void hole_kernel(float* data, bool planted) {
  __shared__ float all[kThreads];
  const unsigned i = threadIdx.x;
  if (!planted || i != 5) all[i] = data[i];
  __syncthreads();
  data[i] = all[kThreads - 1 - i];
}

__global__ void dynamic_hole_kernel(float* data, bool planted) {
  float* const all = dynamic_shared<float>();
  const unsigned i = threadIdx.x;
  if (!planted || i != 5) all[i] = data[i];
  __syncthreads();
  data[i] = all[kThreads - 1 - i];
}

__global__ void shifted_kernel(float* data, int by) {
  data[static_cast<int>(threadIdx.x) + by] = 1;
}

__global__ void beyond_kernel(float* data, unsigned count) {
  float* const all = dynamic_shared<float>();
  if (threadIdx.x < count) all[threadIdx.x] = data[threadIdx.x];
}

__global__ void array_kernel(float* data, unsigned at) {
  __shared__ float all[kThreads];
  if (threadIdx.x != 0) return;
  all[at] = data[0];
  data[1] = all[at];
}

__global__ void touch_kernel(float* data, const float* from) { data[threadIdx.x] = *from; }

__global__ void strided_kernel(float* out, const float* in, int stride) {
  out[threadIdx.x] = in[static_cast<int>(threadIdx.x) * stride];
}

__global__ void conflicting_kernel(float* out, int stride) {
  float* const all = dynamic_shared<float>();
  const int i = static_cast<int>(threadIdx.x);
  all[i * stride] = 1;
  __syncthreads();
  out[i] = all[(i ^ 1) * stride];
}

__global__ void histogram_kernel(unsigned* bins, unsigned spread) {
  atomicAdd(&bins[(blockIdx.x * blockDim.x + threadIdx.x) % spread], 1u);
}

__global__ void shared_histogram_kernel(unsigned* bins, unsigned spread) {
  __shared__ unsigned own[kThreads];
  own[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&own[threadIdx.x % spread], 1u);
  __syncthreads();
  if (threadIdx.x < spread) atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
}

// The two ways do different things to memory, so that no compiler makes one of them.
__global__ void forked_kernel(float* data, int lanes) {
  const int i = static_cast<int>(threadIdx.x);
  if (i % 32 < lanes) {
    data[i] = data[i] * 3;
  } else {
    data[2 * static_cast<int>(kThreads) - 1 - i] = data[i] + 1;
  }
}

__global__ void loops_kernel(float* data, int longest) {
  const int i = static_cast<int>(threadIdx.x);
  for (int k = 0; k < i % longest; ++k) atomicAdd(&data[i], 1.0f);
}

__global__ void by_four_kernel(float4* out, const float4* in, std::size_t n) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride)
    out[i] = in[i];
}

// Vector i of a few, so many bytes off.
template <class V>
__device__ V* off(float* data, unsigned i, int bytes) {
  return reinterpret_cast<V*>(reinterpret_cast<std::byte*>(data) + bytes) + i;
}

template <class V>
__global__ void off_kernel(float* data, int read_off, int write_off) {
  constexpr unsigned kFew = 4;
  if (threadIdx.x < kFew)
    *off<V>(data, kFew + threadIdx.x, write_off) = *off<V>(data, threadIdx.x, read_off);
}

__global__ void off_four_kernel(float* data, int bytes) {
  atomicAdd(off<float4>(data, 0, bytes), make_float4(1, 2, 3, 4));
  if (threadIdx.x == 0) data[kThreads - 1] = 1;
}

__global__ void off_halves_kernel(float* data, int bytes) {
  if (threadIdx.x < kThreads / 2)
    atomicAdd(off<__half2>(data, threadIdx.x, bytes),
              __halves2half2(__ushort_as_half(0x3c00), __ushort_as_half(0x3c00)));
  if (threadIdx.x == 0) data[kThreads - 1] = 1;
}

constexpr LaunchShape kOne{.grid = 1, .block = kThreads};
constexpr LaunchShape kDynamic{.grid = 1, .block = kThreads, .shared_bytes = 4 * kThreads};

bool planted(Planted fault) { return fault == Planted::kYes; }

}  // namespace

void neighbours(float* data, Planted fault) {
  launch(neighbours_kernel, kOne, {}, data, planted(fault));
}
void lanes_share(float* data, Planted fault) {
  launch(lanes_kernel, kOne, {}, data, planted(fault));
}
void blocks_add(float* data, Planted fault) {
  launch(add_kernel, {.grid = 3, .block = kThreads}, {}, data, planted(fault));
}
void last_block_reads(float* data, Planted fault) {
  launch(last_kernel, {.grid = 3, .block = kThreads}, {}, data, planted(fault));
}
void barrier_for_some(float* data, Planted fault) {
  launch(some_kernel, kOne, {}, data, planted(fault));
}
void barrier_after_return(float* data, Planted fault) {
  launch(return_kernel, kOne, {}, data, planted(fault));
}
void two_barriers(float* data, Planted fault) {
  launch(two_kernel, kOne, {}, data, planted(fault));
}
void half_a_shuffle(float* data, Planted fault) {
  launch(half_kernel, kOne, {}, data, planted(fault));
}
void mask_without_self(float* data, Planted fault) {
  launch(self_kernel, kOne, {}, data, planted(fault));
}
void leaver_of_a_group(float* data, Planted fault) {
  launch(group_kernel, kOne, {}, data, planted(fault));
}
void hole_in_shared(float* data, Planted fault) {
  launch(hole_kernel, kOne, {}, data, planted(fault));
}
void hole_in_dynamic(float* data, Planted fault) {
  launch(dynamic_hole_kernel, kDynamic, {}, data, planted(fault));
}
void one_too_far(float* data, Planted fault) {
  launch(shifted_kernel, kOne, {}, data, planted(fault) ? 1 : 0);
}
void one_before(float* data, Planted fault) {
  launch(shifted_kernel, kOne, {}, data, planted(fault) ? -1 : 0);
}
void beyond_dynamic(float* data, Planted fault) {
  launch(beyond_kernel, {.grid = 1, .block = kThreads, .shared_bytes = 4 * 10}, {}, data,
         planted(fault) ? 11u : 10u);
}
void beyond_array(float* data, Planted fault) {
  launch(array_kernel, kOne, {}, data, planted(fault) ? kThreads : kThreads - 1);
}
template <class V>
void launch_off(float* data, Planted fault) {
  launch(off_kernel<V>, kOne, {}, data, planted(fault) ? 4 : 0, planted(fault) ? 4 : 0);
}
void words_of_8(float* data, Planted fault) { launch_off<std::uint64_t>(data, fault); }
void words_of_16(float* data, Planted fault) { launch_off<Word<float, 4>>(data, fault); }
void vectors_of_2(float* data, Planted fault) { launch_off<float2>(data, fault); }
void reads_of_2(float* data, Planted fault) {
  launch(off_kernel<float2>, kOne, {}, data, planted(fault) ? 4 : 0, 0);
}
void vectors_of_4(float* data, Planted fault) { launch_off<float4>(data, fault); }
void reads_of_4(float* data, Planted fault) {
  launch(off_kernel<int4>, kOne, {}, data, planted(fault) ? 8 : 0, 0);
}
void writes_of_2_doubles(float* data, Planted fault) {
  launch(off_kernel<double2>, kOne, {}, data, 0, planted(fault) ? 8 : 0);
}
void adds_of_4(float* data, Planted fault) {
  launch(off_four_kernel, kOne, {}, data, planted(fault) ? 4 : 0);
}
void adds_of_2_halves(float* data, Planted fault) {
  launch(off_halves_kernel, kOne, {}, data, planted(fault) ? 2 : 0);
}
void touches(float* data, const float* host, Planted fault) {
  launch(touch_kernel, kOne, {}, data, planted(fault) ? host : data + kThreads);
}

void reads_meets_adds(float* data) {
  launch(reads_meets_adds_kernel, {.grid = 3, .block = kThreads}, {}, data);
}

void atomics_by_four(float* data) {
  launch(four_kernel, {.grid = 3, .block = kThreads}, {}, reinterpret_cast<float4*>(data));
}
void strided(float* out, const float* in, int stride) {
  launch(strided_kernel, kOne, {}, out, in, stride);
}
void conflicting(float* out, int stride) {
  const auto bytes = kThreads * static_cast<unsigned>(stride) * 4;
  launch(conflicting_kernel, {.grid = 1, .block = kThreads, .shared_bytes = bytes}, {}, out,
         stride);
}
void histogram(unsigned* bins, unsigned spread) {
  launch(histogram_kernel, {.grid = 4, .block = kThreads}, {}, bins, spread);
}
void shared_histogram(unsigned* bins, unsigned spread) {
  launch(shared_histogram_kernel, {.grid = 4, .block = kThreads}, {}, bins, spread);
}
void forked(float* data, int lanes) { launch(forked_kernel, kOne, {}, data, lanes); }
void loops(float* data, int longest) { launch(loops_kernel, kOne, {}, data, longest); }
void copied_by_four(float* out, const float* in, std::size_t n) {
  launch(by_four_kernel, {.grid = 4, .block = kThreads}, {}, reinterpret_cast<float4*>(out),
         reinterpret_cast<const float4*>(in), n / 4);
}

}  // namespace motley::test
