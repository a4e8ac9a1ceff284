// Device half of quantize.h. Memory-bound: reads n floats and writes n bytes, or the reverse. Each
// thread takes four elements, so that 16 or 32 neighbours have a block.
#include "comm/kernel/packs.cuh"
#include "comm/kernel/quantize_ops.h"
#include "comm/quantize.h"

namespace motley {
namespace {

constexpr int kPack = 4;

struct Blocks {
  std::size_t n;   // elements
  unsigned lanes;  // threads of a block of elements
};

// The k-th element of thread i: four in a row where packs can be loaded; else every lanes-th of the
// block.
template <bool kPacked>
__device__ std::size_t element(const Blocks& blocks, std::size_t i, int k) {
  if constexpr (kPacked) return kPack * i + k;
  const std::size_t lane = i % blocks.lanes;
  return kPack * (i - lane) + k * blocks.lanes + lane;
}

// The elements of thread i; 0 behind the end.
template <bool kPacked, class T>
__device__ Pack<T, kPack> load_four(const T* from, const Blocks& blocks, std::size_t i) {
  if (kPacked && kPack * (i + 1) <= blocks.n)
    return std::bit_cast<Pack<T, kPack>>(reinterpret_cast<const Word<T, kPack>*>(from)[i]);
  Pack<T, kPack> four{};
  for (int k = 0; k < kPack; ++k) {
    const std::size_t at = element<kPacked>(blocks, i, k);
    if (at < blocks.n) four.x[k] = from[at];
  }
  return four;
}

template <bool kPacked, class T>
__device__ void store_four(T* to, const Blocks& blocks, std::size_t i, const Pack<T, kPack>& four) {
  if (kPacked && kPack * (i + 1) <= blocks.n) return store_pack(to, i, four);
  for (int k = 0; k < kPack; ++k) {
    const std::size_t at = element<kPacked>(blocks, i, k);
    if (at < blocks.n) to[at] = four.x[k];
  }
}

// The largest `most` of the threads that share a block.
__device__ std::uint32_t most_of_block(std::uint32_t most, unsigned lanes) {
  for (unsigned step = lanes / 2; step != 0; step /= 2) {
    const std::uint32_t other = __shfl_xor_sync(0xffffffffu, most, static_cast<int>(step));
    most = other > most ? other : most;
  }
  return most;
}

template <class T, bool kPacked>
__global__ void __launch_bounds__(kPackThreads, kPackBlocks)
    quantize_kernel(std::int8_t* values, float* scales, const T* in, Blocks blocks) {
  const std::size_t stride = std::size_t{gridDim.x} * kPackThreads;
  // Whole warps go round together: they are asked for their largest.
  for (std::size_t base = std::size_t{blockIdx.x} * kPackThreads; kPack * base < blocks.n;
       base += stride) {
    const std::size_t i = base + threadIdx.x;
    const auto from = load_four<kPacked>(in, blocks, i);
    std::uint32_t most = 0;
    for (int k = 0; k < kPack; ++k) {
      const std::uint32_t bits = magnitude_bits(cast<float>(from.x[k]));
      most = bits > most ? bits : most;
    }
    const float scale = block_scale(most_of_block(most, blocks.lanes));
    const float inverse = inverse_scale(scale);
    if (i % blocks.lanes == 0 && kPack * i < blocks.n) scales[i / blocks.lanes] = scale;
    Pack<std::int8_t, kPack> to;
    for (int k = 0; k < kPack; ++k) to.x[k] = quantized(cast<float>(from.x[k]), inverse);
    store_four<kPacked>(values, blocks, i, to);
  }
}

template <class T, bool kPacked>
__global__ void __launch_bounds__(kPackThreads, kPackBlocks)
    dequantize_kernel(T* out, const std::int8_t* values, const float* scales, Blocks blocks) {
  const std::size_t stride = std::size_t{gridDim.x} * kPackThreads;
  const std::size_t first = std::size_t{blockIdx.x} * kPackThreads + threadIdx.x;
  for (std::size_t i = first; kPack * (i - i % blocks.lanes) < blocks.n; i += stride) {
    const auto from = load_four<kPacked>(values, blocks, i);
    const float scale = scales[i / blocks.lanes];
    Pack<T, kPack> to;
    for (int k = 0; k < kPack; ++k) to.x[k] = dequantized<T>(from.x[k], scale);
    store_four<kPacked>(out, blocks, i, to);
  }
}

// Whether four elements at once can be loaded and stored.
bool packed(const Quantized& q, ConstView floats) {
  return reinterpret_cast<std::uintptr_t>(q.values.data) % kPack == 0 &&
         reinterpret_cast<std::uintptr_t>(floats.data) % (kPack * size_bytes(floats.dtype)) == 0;
}

template <class... Parameters, class... Arguments>
void launch_blocks(void (*kernel)(Parameters...), const Quantized& q, StreamRef stream,
                   Arguments... arguments) {
  const std::size_t n = q.values.count;
  const Blocks blocks{n, static_cast<unsigned>(q.block / kPack)};
  const std::size_t threads = (n + kPack - 1) / kPack;
  launch(kernel, {.grid = blocks_for(threads, kPackThreads), .block = kPackThreads}, stream,
         arguments..., blocks);
}

}  // namespace

void quantize_on_device(const Quantized& out, ConstView in, StreamRef stream) {
  check_quantized(out, in);
  if (in.count == 0) return;  // an empty grid is a launch error
  dispatch_float(in.dtype, [&]<class T>() {
    launch_blocks(packed(out, in) ? quantize_kernel<T, true> : quantize_kernel<T, false>, out,
                  stream, out.values.as<std::int8_t>().data(), out.scales.as<float>().data(),
                  in.as<const T>().data());
  });
}

void dequantize_on_device(View out, const Quantized& in, StreamRef stream) {
  check_quantized(in, out);
  if (out.count == 0) return;
  dispatch_float(out.dtype, [&]<class T>() {
    launch_blocks(packed(in, out) ? dequantize_kernel<T, true> : dequantize_kernel<T, false>, in,
                  stream, out.as<T>().data(), in.values.as<const std::int8_t>().data(),
                  in.scales.as<const float>().data());
  });
}

}  // namespace motley
