#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "comm/launch.cuh"
#include "test/simt/meeting_kernels.h"

namespace motley::test {
namespace {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kThreads = 256;

// The sum over the block, for its first thread.
__device__ float block_sum(float value) {
  __shared__ float of_warp[32];
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kAll, value, step);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0;
  if (threadIdx.x == 0) {
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) total += of_warp[warp];
  }
  return total;
}

__device__ float own_share(const float* in, std::size_t n) {
  float share = 0;
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride)
    share += in[i];
  return share;
}

__global__ void __launch_bounds__(kThreads)
    sum_kernel(float* out, const float* __restrict__ in, std::size_t n) {
  const float total = block_sum(own_share(in, n));
  if (threadIdx.x == 0) atomicAdd(out, total);
}

__global__ void lanes_kernel(std::int32_t* out) {
  const int lane = static_cast<int>(threadIdx.x);
  const int value = 3 * lane + 1;
  const auto row = [&](Row at, int result) { out[32 * at + lane] = result; };
  row(kFromFive, __shfl_sync(kAll, value, 5));
  row(kRotated, __shfl_sync(kAll, value, lane + 1, 8));
  row(kUp2, __shfl_up_sync(kAll, value, 2));
  row(kDown4, __shfl_down_sync(kAll, value, 4, 16));
  row(kXor9, __shfl_xor_sync(kAll, value, 9));
  row(kBallotOdd, static_cast<int>(__ballot_sync(kAll, lane % 2)));
  row(kAnyOfSeven, __any_sync(kAll, lane == 7));
  row(kAllOfThem, __all_sync(kAll, lane < 32));
  row(kSameThird, static_cast<int>(__match_any_sync(kAll, lane / 3)));
  int same = 0;
  __match_all_sync(kAll, 4, &same);
  row(kAllSame, same);
  row(kSum, __reduce_add_sync(kAll, value));
  row(kLeast, __reduce_min_sync(kAll, -value));
  const unsigned half = lane < 16 ? 0xffffu : 0xffff0000u;
  if (lane < 16) {
    row(kHalfSum, __reduce_add_sync(half, value));
  } else {
    row(kHalfSum, __reduce_add_sync(half, value));
  }
  row(kBits, __popc(static_cast<unsigned>(value)) + 100 * __ffs(value) + 10'000 * __clz(value));
  const auto block = cooperative_groups::this_thread_block();
  const auto eight = cooperative_groups::tiled_partition<8>(block);
  row(kTileRank, static_cast<int>(eight.thread_rank()));
  int total = value;
  for (unsigned step = eight.size() / 2; step > 0; step /= 2) total += eight.shfl_xor(total, step);
  eight.sync();
  row(kTileSum, total);
  const auto four = cooperative_groups::tiled_partition<4>(block);
  row(kTileBallot, static_cast<int>(four.ballot(lane % 2)));
}

__global__ void wide_kernel(double* out) {
  out[threadIdx.x] = __shfl_xor_sync(kAll, static_cast<double>(threadIdx.x) + 0.5, 1);
}

__global__ void votes_kernel(std::int32_t* out, int limit) {
  const int below = static_cast<int>(threadIdx.x) < limit;
  const int count = __syncthreads_count(below);
  const int any = __syncthreads_or(below);
  const int all = __syncthreads_and(below);
  if (threadIdx.x + 1 != blockDim.x) return;
  out[0] = count;
  out[1] = any;
  out[2] = all;
}

__global__ void atomics_kernel(Cells* cells) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&cells->sum, -1);
  atomicMin(&cells->least, i + 5);
  atomicMax(&cells->most, i);
  atomicAnd(&cells->and_bits, ~(1u << i % 8));
  atomicOr(&cells->or_bits, 1u << i % 8);
  atomicXor(&cells->xor_bits, i);
  atomicInc(&cells->wrapped, 9);
  unsigned seen = cells->swapped;
  for (unsigned before = seen + 1; before != seen;) {
    before = seen;
    seen = atomicCAS(&cells->swapped, before, before + 1);
  }
  atomicAdd(&cells->wide, 1ull << 33);
  if (atomicExch(&cells->exchanged, i + 1) == i + 1) cells->sum = 1'000'000;
  atomicAdd(&cells->single, 0.5f);
  atomicAdd(&cells->twice, 0.25);
}

__global__ void place_kernel(std::int32_t* out) {
  const unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned y = blockIdx.y * blockDim.y + threadIdx.y;
  const unsigned z = blockIdx.z * blockDim.z + threadIdx.z;
  const unsigned at = (z * gridDim.y * blockDim.y + y) * gridDim.x * blockDim.x + x;
  out[at] = static_cast<std::int32_t>(at);
}

__global__ void reversed_kernel(float* out, const float* in) {
  float* const all = dynamic_shared<float>();
  all[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = all[blockDim.x - 1 - threadIdx.x];
}

__global__ void __launch_bounds__(kThreads)
    last_block_kernel(float* out, float* partial, unsigned* counter, const float* in,
                      std::size_t n) {
  __shared__ bool last;
  const float total = block_sum(own_share(in, n));
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = total;
    __threadfence();
    last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  float sum = 0;
  for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x) sum += partial[i];
  __syncthreads();
  sum = block_sum(sum);
  if (threadIdx.x == 0) *out = sum;
}

// One atomic for the lanes of a label that run together.
__global__ void tickets_kernel(std::int32_t* out, unsigned* counters, unsigned* atomics) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i % 3 == 0) return;
  const auto here = cooperative_groups::coalesced_threads();
  const auto group = cooperative_groups::labeled_partition(here, static_cast<int>(i % 5));
  unsigned first = 0;
  if (group.thread_rank() == 0) {
    first = atomicAdd(&counters[i % 5], group.size());
    atomicAdd(atomics, 1u);
  }
  first = group.shfl(first, 0);
  out[i] = static_cast<std::int32_t>(first + group.thread_rank());
}

__global__ void short_sums_kernel(ShortSums* sums) {
  const unsigned i = threadIdx.x;
  atomicAdd(reinterpret_cast<__half*>(&sums->half_sum), __ushort_as_half(0x3c00));  // 1
  atomicAdd(reinterpret_cast<__half2*>(sums->half_pair),
            __halves2half2(__ushort_as_half(0x3c00), __ushort_as_half(0xc000)));  // 1, -2
  atomicAdd(reinterpret_cast<__nv_bfloat162*>(sums->bfloat16_pair),
            __halves2bfloat162(__ushort_as_bfloat16(0x3f80), __ushort_as_bfloat16(0x3f80)));
  const __half before =
      atomicAdd(reinterpret_cast<__half*>(&sums->taken), __ushort_as_half(0x3c00));
  if (i == 0) sums->seen = reinterpret_cast<const std::uint16_t&>(before);
}

__global__ void nothing_kernel() {}

}  // namespace

void sum(float* out, const float* in, std::size_t n, unsigned blocks, StreamRef stream) {
  launch(sum_kernel, {.grid = blocks, .block = kThreads}, stream, out, in, n);
}
void lanes(std::int32_t* out, StreamRef stream) {
  launch(lanes_kernel, {.grid = 1, .block = 32}, stream, out);
}
void wide_lanes(double* out, StreamRef stream) {
  launch(wide_kernel, {.grid = 1, .block = 32}, stream, out);
}
void votes(std::int32_t* out, int limit, unsigned threads, StreamRef stream) {
  launch(votes_kernel, {.grid = 1, .block = threads}, stream, out, limit);
}
void atomics(Cells* cells, unsigned blocks, StreamRef stream) {
  launch(atomics_kernel, {.grid = blocks, .block = 64}, stream, cells);
}
void place(std::int32_t* out, StreamRef stream) {
  launch(place_kernel, {.grid = {2, 3, 4}, .block = {4, 2, 2}}, stream, out);
}
void reversed(float* out, const float* in, unsigned n, StreamRef stream) {
  launch(reversed_kernel, {.grid = 1, .block = n, .shared_bytes = n * sizeof(float)}, stream, out,
         in);
}
void last_block_sum(float* out, float* partial, unsigned* counter, const float* in, std::size_t n,
                    unsigned blocks, StreamRef stream) {
  launch(last_block_kernel, {.grid = blocks, .block = kThreads}, stream, out, partial, counter, in,
         n);
}
void tickets(std::int32_t* out, unsigned* counters, unsigned* atomics, unsigned blocks,
             StreamRef stream) {
  launch(tickets_kernel, {.grid = blocks, .block = 64}, stream, out, counters, atomics);
}
void short_sums(ShortSums* sums, StreamRef stream) {
  launch(short_sums_kernel, {.grid = 1, .block = 64}, stream, sums);
}
void launch_nothing(unsigned blocks, unsigned threads, std::size_t shared_bytes, StreamRef stream) {
  launch(nothing_kernel, {.grid = blocks, .block = threads, .shared_bytes = shared_bytes}, stream);
}

}  // namespace motley::test
