// Device half of combine.h. Memory-bound: reads each source once and writes n elements.
#include <array>

#include "comm/kernel/combine.h"
#include "comm/kernel/ops.h"
#include "comm/kernel/packs.cuh"

namespace motley {
namespace {

enum class Mode { kPlain, kAveraged, kWeighted };

template <class T>
struct Sources {
  const T* at[kMaxCombined];
  Wide<T> weights[kMaxCombined];
  int count;
};

// The terms of source s, in the type in which they are combined.
template <Mode kMode, int kPack, class T>
__device__ Pack<Wide<T>, kPack> widened(const Pack<T, kPack>& terms, const Sources<T>& sources,
                                        int s) {
  Pack<Wide<T>, kPack> wide;
  for (int k = 0; k < kPack; ++k) {
    wide.x[k] = cast<Wide<T>>(terms.x[k]);
    if constexpr (kMode == Mode::kWeighted) wide.x[k] *= sources.weights[s];
  }
  return wide;
}

template <Mode kMode, class T>
__device__ T rounded(Wide<T> sum, int count) {
  if constexpr (kMode == Mode::kAveraged) sum = divided(sum, count);
  return cast<T>(sum);
}

// Two tiles at once: a span that begins in the middle of a sector has 33 sectors for 32.
constexpr int kTiles = 2;
// Of int8 a lane has 32 sums, each in a register: at most 128 a thread.
template <class T>
constexpr int kBlocksOf = sizeof(T) == 1 ? 2 : kPackBlocks;

template <class T, class Op, Mode kMode>
__global__ void __launch_bounds__(kPackThreads, kBlocksOf<T>)
    combine_kernel(T* out, const Sources<T> sources, Cut cut) {
  constexpr int kPack = kPackOf<T, T>;
  const Op op;
  for_spans<kTiles>(cut, [&](std::size_t base, int packs) {
    const auto load = [&](Word<T, kPack>(&tiles)[kTiles], int s) {
      load_tiles(tiles, Elements<T>{sources.at[s], cut.n},
                 static_cast<std::int64_t>(cut.head + base * kPack), 0, packs * kPack);
    };
    // The next source is on the way while one is combined.
    Word<T, kPack> next[kTiles];
    load(next, 0);
    Pack<Wide<T>, kPack> sum[kTiles];
    for (int tile = 0; tile < kTiles; ++tile)
      sum[tile] = widened<kMode>(unpacked<T>(next[tile]), sources, 0);
    if (sources.count > 1) load(next, 1);
    for (int s = 1; s < sources.count; ++s) {
      Word<T, kPack> now[kTiles];
      for (int tile = 0; tile < kTiles; ++tile) now[tile] = next[tile];
      if (s + 1 < sources.count) load(next, s + 1);
      for (int tile = 0; tile < kTiles; ++tile) {
        const auto wide = widened<kMode>(unpacked<T>(now[tile]), sources, s);
        for (int k = 0; k < kPack; ++k) sum[tile].x[k] = op(sum[tile].x[k], wide.x[k]);
      }
    }
    for (int tile = 0; tile < kTiles; ++tile) {
      const int i = tile * kWarpLanes + lane_of_warp();
      Pack<T, kPack> result;
      for (int k = 0; k < kPack; ++k)
        result.x[k] = rounded<kMode, T>(sum[tile].x[k], sources.count);
      if (i < packs) store_pack(out + cut.head, base + static_cast<std::size_t>(i), result);
    }
  });
  if (blockIdx.x == 0 && threadIdx.x < cut.single()) {
    const std::size_t i = cut.single_at(threadIdx.x);
    const auto term = [&](int s) {
      auto wide = cast<Wide<T>>(sources.at[s][i]);
      if constexpr (kMode == Mode::kWeighted) wide *= sources.weights[s];
      return wide;
    };
    auto sum = term(0);
    for (int s = 1; s < sources.count; ++s) sum = op(sum, term(s));
    out[i] = rounded<kMode, T>(sum, sources.count);
  }
}

template <class T, class Op, Mode kMode>
void combine(View out, std::span<const ConstView> in, std::span<const double> weights,
             StreamRef stream) {
  Sources<T> sources{};
  sources.count = static_cast<int>(in.size());
  for (std::size_t s = 0; s < in.size(); ++s) {
    sources.at[s] = in[s].as<const T>().data();
    if constexpr (kMode == Mode::kWeighted) sources.weights[s] = static_cast<Wide<T>>(weights[s]);
  }
  const Cut by = cut(out, kPackOf<T, T>);
  launch(combine_kernel<T, Op, kMode>, shape_of(by, kTiles), stream, out.as<T>().data(), sources,
         by);
}

}  // namespace

void combine_on_device(View out, std::span<const ConstView> in, ReduceOp op, StreamRef stream) {
  assert(!in.empty() && in.size() <= kMaxCombined && op != ReduceOp::kWeightedSum);
  if (out.count == 0) return;
  dispatch(out.dtype, op, [&]<class T>(auto functor) {
    using Op = decltype(functor);
    if constexpr (std::is_same_v<Op, Sum>) {
      if (op == ReduceOp::kAverage) return combine<T, Sum, Mode::kAveraged>(out, in, {}, stream);
    }
    combine<T, Op, Mode::kPlain>(out, in, {}, stream);
  });
}

void weighted_sum_on_device(View out, std::span<const ConstView> in,
                            std::span<const double> weights, StreamRef stream) {
  assert(!in.empty() && in.size() <= kMaxCombined && in.size() == weights.size());
  assert(is_floating(out.dtype));
  if (out.count == 0) return;
  dispatch(out.dtype, [&]<class T>() {
    if constexpr (!std::is_integral_v<T>) {
      combine<T, Sum, Mode::kWeighted>(out, in, weights, stream);
    }
  });
}

}  // namespace motley
