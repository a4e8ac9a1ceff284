// comm/kernel/packs.cuh: kernels made of one function of an element.
#pragma once

#include "comm/kernel/tiles.cuh"

namespace motley {

// Blocks whose warps take `tiles` tiles of packs at once.
inline LaunchShape shape_of(const Cut& cut, std::size_t tiles) {
  return {.grid = blocks_for(cut.packs / tiles + 1, kPackThreads), .block = kPackThreads};
}

// Elements of a pack of which the wider type fills 16 bytes.
template <class To, class From>
constexpr int kPackOf = 16 / (sizeof(To) > sizeof(From) ? sizeof(To) : sizeof(From));

// Tiles that a warp takes at once, whose loads are on the way together.
template <class To, class From>
constexpr int kTilesOf = kPackOf<To, From> == 16 ? 2 : 4;

// Calls body(first pack, end of its elements) for each span of this warp; all lanes together.
template <int kTiles, class Body>
__device__ void for_spans(const Cut& cut, const Body& body) {
  constexpr std::size_t kSpan = kTiles * kWarpLanes;
  for (std::size_t base = warp_of_grid() * kSpan; base < cut.packs;
       base += warps_of_grid() * kSpan) {
    const std::size_t left = cut.packs - base;
    body(base, static_cast<int>(left < kSpan ? left : kSpan));
  }
}

template <int kCount, class T>
__device__ void store_pack(T* first, std::size_t i, const Pack<T, kCount>& pack) {
  reinterpret_cast<Word<T, kCount>*>(first)[i] = packed(pack);
}

// out[i] = function(in[i])
template <class To, class From, class Function>
__global__ void __launch_bounds__(kPackThreads, kPackBlocks)
    map_kernel(To* out, const From* in, Cut cut, Function function) {
  constexpr int kPack = kPackOf<To, From>, kTiles = kTilesOf<To, From>;
  for_spans<kTiles>(cut, [&](std::size_t base, int packs) {
    Word<From, kPack> from[kTiles];
    load_tiles(from, Elements<From>{in, cut.n}, static_cast<std::int64_t>(cut.head + base * kPack),
               0, packs * kPack);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int i = tile * kWarpLanes + lane_of_warp();
      const auto in_pack = unpacked<From>(from[tile]);
      Pack<To, kPack> to;
      for (int k = 0; k < kPack; ++k) to.x[k] = function(in_pack.x[k]);
      if (i < packs) store_pack(out + cut.head, base + static_cast<std::size_t>(i), to);
    }
  });
  if (blockIdx.x == 0 && threadIdx.x < cut.single()) {
    const std::size_t i = cut.single_at(threadIdx.x);
    out[i] = function(in[i]);
  }
}

// The same of whole views, in stream order.
template <class To, class From, class Function>
void map_on_device(View out, ConstView in, Function function, StreamRef stream) {
  if (out.count == 0) return;  // an empty grid is a launch error
  const Cut by = cut(out, kPackOf<To, From>);
  launch(map_kernel<To, From, Function>, shape_of(by, kTilesOf<To, From>), stream,
         out.as<To>().data(), in.as<const From>().data(), by, function);
}

}  // namespace motley
