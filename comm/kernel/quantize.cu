// Device half of quantize.h. Memory-bound: reads n floats and writes n bytes, or the reverse. Each
// lane takes four elements of a tile, so that 16 or 32 neighbours have a block.
#include "comm/kernel/quantize_ops.h"
#include "comm/kernel/tiles.cuh"
#include "comm/quantize.h"

namespace motley {
namespace {

constexpr int kPack = 4;

struct Blocks {
  std::size_t n;   // elements
  unsigned lanes;  // of a block of elements
};

// A warp takes so many tiles of 128 elements at once: 2 KiB of floats, and the scales of all their
// blocks.
template <class T>
constexpr int kTilesOf = 16 / sizeof(T);

// Calls body(first element, how many) for each span of this warp; all lanes together.
template <int kTiles, class Body>
__device__ void for_spans(const Blocks& blocks, const Body& body) {
  constexpr std::size_t kSpan = kTiles * kWarpLanes * kPack;
  for (std::size_t base = warp_of_grid() * kSpan; base < blocks.n;
       base += warps_of_grid() * kSpan) {
    const std::size_t left = blocks.n - base;
    body(base, static_cast<int>(left < kSpan ? left : kSpan));
  }
}

// Elements [base, base + n) of `to`, wherever that lies.
template <class T, int kTiles>
__device__ void store_span(T* to, std::size_t base, int n, const Word<T, kPack> (&tiles)[kTiles]) {
  T* const at = to + base;
  const auto off =
      static_cast<int>(reinterpret_cast<std::uintptr_t>(at) % kSectorBytes / sizeof(T));
  Word<T, kPack> later[kTiles + 1];
  delay_tiles<T>(later, tiles, off);
  store_tiles(at - off, off, off + n, later);
}

// The largest `most` of the threads that share a block.
__device__ std::uint32_t most_of_block(std::uint32_t most, unsigned lanes) {
  for (unsigned step = lanes / 2; step != 0; step /= 2) {
    const std::uint32_t other = __shfl_xor_sync(0xffffffffu, most, static_cast<int>(step));
    most = other > most ? other : most;
  }
  return most;
}

// Which scale of its warp's a lane has the block of, in one tile.
__device__ unsigned scale_of(unsigned lane, unsigned lanes, int tile) {
  return static_cast<unsigned>(tile) * (kWarpLanes / lanes) + lane / lanes;
}

template <class T>
__global__ void __launch_bounds__(kPackThreads, kPackBlocks)
    quantize_kernel(std::int8_t* values, float* scales, const T* in, Blocks blocks) {
  constexpr int kTiles = kTilesOf<T>;
  const unsigned lane = threadIdx.x % kWarpLanes, per_tile = kWarpLanes / blocks.lanes;
  // Whole warps go round together: they are asked for their largest.
  for_spans<kTiles>(blocks, [&](std::size_t base, int n) {
    Word<T, kPack> from[kTiles];
    load_tiles(from, Elements<T>{in, blocks.n}, static_cast<std::int64_t>(base), 0, n);
    Word<std::int8_t, kPack> to[kTiles];
    float scale_to_store = 0;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const auto floats = unpacked<T>(from[tile]);
      std::uint32_t most = 0;
      for (int k = 0; k < kPack; ++k) {
        const std::uint32_t bits = magnitude_bits(cast<float>(floats.x[k]));
        const bool there = (tile * kWarpLanes + static_cast<int>(lane)) * kPack + k < n;
        most = there && bits > most ? bits : most;
      }
      const float scale = block_scale(most_of_block(most, blocks.lanes));
      const float inverse = inverse_scale(scale);
      const int first_lane = static_cast<int>(lane % per_tile * blocks.lanes);
      const float of_tile = __shfl_sync(0xffffffffu, scale, first_lane);
      if (lane / per_tile == static_cast<unsigned>(tile)) scale_to_store = of_tile;
      Pack<std::int8_t, kPack> four;
      for (int k = 0; k < kPack; ++k) four.x[k] = quantized(cast<float>(floats.x[k]), inverse);
      to[tile] = packed(four);
    }
    store_span<std::int8_t>(values, base, n, to);
    const std::size_t at = base / kPack / blocks.lanes + lane;
    if (lane < kTiles * per_tile && kPack * blocks.lanes * at < blocks.n)
      scales[at] = scale_to_store;
  });
}

template <class T>
__global__ void __launch_bounds__(kPackThreads, kPackBlocks)
    dequantize_kernel(T* out, const std::int8_t* values, const float* scales, Blocks blocks) {
  constexpr int kTiles = kTilesOf<T>;
  const unsigned lane = threadIdx.x % kWarpLanes, per_tile = kWarpLanes / blocks.lanes;
  for_spans<kTiles>(blocks, [&](std::size_t base, int n) {
    const std::size_t at = base / kPack / blocks.lanes + lane;
    const bool has = lane < kTiles * per_tile && kPack * blocks.lanes * at < blocks.n;
    const float of_lane = has ? scales[at] : 0.0f;
    Word<std::int8_t, kPack> from[kTiles];
    load_tiles(from, Elements<std::int8_t>{values, blocks.n}, static_cast<std::int64_t>(base), 0,
               n);
    Word<T, kPack> to[kTiles];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const float scale =
          __shfl_sync(0xffffffffu, of_lane, static_cast<int>(scale_of(lane, blocks.lanes, tile)));
      const auto bytes = unpacked<std::int8_t>(from[tile]);
      Pack<T, kPack> four;
      for (int k = 0; k < kPack; ++k) four.x[k] = dequantized<T>(bytes.x[k], scale);
      to[tile] = packed(four);
    }
    store_span<T>(out, base, n, to);
  });
}

template <class T, class... Parameters, class... Arguments>
void launch_blocks(void (*kernel)(Parameters...), const Quantized& q, StreamRef stream,
                   Arguments... arguments) {
  const Blocks blocks{q.values.count, static_cast<unsigned>(q.block / kPack)};
  const std::size_t threads = blocks.n / (kTilesOf<T> * kPack) + 1;
  launch(kernel, {.grid = blocks_for(threads, kPackThreads), .block = kPackThreads}, stream,
         arguments..., blocks);
}

}  // namespace

void quantize_on_device(const Quantized& out, ConstView in, StreamRef stream) {
  check_quantized(out, in);
  if (in.count == 0) return;  // an empty grid is a launch error
  dispatch_float(in.dtype, [&]<class T>() {
    launch_blocks<T>(quantize_kernel<T>, out, stream, out.values.as<std::int8_t>().data(),
                     out.scales.as<float>().data(), in.as<const T>().data());
  });
}

void dequantize_on_device(View out, const Quantized& in, StreamRef stream) {
  check_quantized(in, out);
  if (out.count == 0) return;
  dispatch_float(out.dtype, [&]<class T>() {
    launch_blocks<T>(dequantize_kernel<T>, in, stream, out.as<T>().data(),
                     in.values.as<const std::int8_t>().data(), in.scales.as<const float>().data());
  });
}

}  // namespace motley
