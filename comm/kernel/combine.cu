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

template <class T, class Op, Mode kMode>
__global__ void __launch_bounds__(kPackThreads, kPackBlocks)
    combine_kernel(T* out, const Sources<T> sources, Cut cut) {
  constexpr int kPack = kPackOf<T, T>;
  const Op op;
  const std::size_t stride = std::size_t{gridDim.x} * kPackThreads;
  for (std::size_t base = std::size_t{blockIdx.x} * kPackThreads; base < cut.packs;
       base += stride) {
    const std::size_t i = base + threadIdx.x;
    const auto load = [&](int s) {
      return load_pack<kPack>(sources.at[s] + cut.head, i, cut.packs);
    };
    // The next source is on the way while one is combined.
    const Pack<T, kPack> first = load(0);
    Pack<T, kPack> next = sources.count > 1 ? load(1) : first;
    auto sum = widened<kMode>(first, sources, 0);
    for (int s = 1; s < sources.count; ++s) {
      const auto wide = widened<kMode>(next, sources, s);
      if (s + 1 < sources.count) next = load(s + 1);
      for (int k = 0; k < kPack; ++k) sum.x[k] = op(sum.x[k], wide.x[k]);
    }
    Pack<T, kPack> result;
    for (int k = 0; k < kPack; ++k) result.x[k] = rounded<kMode, T>(sum.x[k], sources.count);
    if (i < cut.packs) store_pack(out + cut.head, i, result);
  }
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
  const Cut by = cut(out, in, kPackOf<T, T>);
  launch(combine_kernel<T, Op, kMode>, shape_of(by, 1), stream, out.as<T>().data(), sources, by);
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
