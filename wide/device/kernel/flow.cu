// Device half of asynchronous training (kernels.h) for linear models and FM. A warp has a row: what
// it reads of a row's features it keeps in registers until it has updated them.
#include <algorithm>

#include "wide/device/kernel/by_field.h"
#include "wide/device/kernel/hot.cuh"
#include "wide/device/kernel/segments.cuh"

namespace motley::wide {
namespace {

// Edges that a lane keeps, as many as it has registers for: of rows of 40 features none is read
// twice, up to 32 factors; of more the hotter ones, whose weights are in shared memory.
template <int kQuads>
constexpr int kKept = std::min((40 + kEdgesAtOnce<kQuads> - 1) / kEdgesAtOnce<kQuads>, 10);

// An edge, this lane's four of its slot's factors, and, in the edge's first lane, what the linear
// weight has.
struct Edge {
  std::uint32_t slot;
  float x;
  Quad v;
  One linear[kMostPlanes];
};

template <int kQuads>
class RowPass {
 public:
  __device__ RowPass(const DeviceJob& job, const BatchArrays& b, const Hot& hot)
      : job_(job),
        b_(b),
        hot_(hot),
        quad_(static_cast<int>(threadIdx.x % kLanesOfWarp) % kLanes),
        first_(threadIdx.x % kLanesOfWarp / kLanes),
        replica_(threadIdx.x / kLanesOfWarp % (hot.replicas == 0 ? 1 : hot.replicas)) {}

  // Returns the score of row `at` of the window, in all lanes.
  __device__ float run(const RowHead& head, std::uint32_t at) {
    constexpr std::uint32_t kAtOnce = kEdgesAtOnce<kQuads>;
    const std::uint32_t begin = head.begin + first_, end = head.end;
    const std::uint32_t rounds = (end - head.begin + kAtOnce - 1) / kAtOnce;
    const std::uint32_t keeps = begin + (rounds > kMany ? rounds - kMany : 0) * kAtOnce;
    RowSum sum;
    for (std::uint32_t e = begin; e < keeps; e += kAtOnce) {
      Edge edge;
      load(edge, head, e);
      gather(sum, edge);
    }
    Edge kept[kMany];
#pragma unroll
#pragma GCC unroll 16
    for (int i = 0; i < kMany; ++i) {
      const std::uint32_t e = keeps + static_cast<unsigned>(i) * kAtOnce;
      if (e < end) {
        load(kept[i], head, e);
        gather(sum, kept[i]);
      }
    }
    const float score = hot_.bias[0] + score_of_warp<kQuads>(sum);
    const float slope = slope_of_row(job_.loss, head, score);
    bias_gradient += slope;
    if (hot_.has_owners()) keep(sum, head, at, slope);
    for (std::uint32_t e = begin; e < keeps; e += kAtOnce) {
      Edge edge;
      load(edge, head, e);
      scatter(sum, edge, slope);
    }
#pragma unroll
#pragma GCC unroll 16
    for (int i = 0; i < kMany; ++i) {
      if (keeps + static_cast<unsigned>(i) * kAtOnce < end) scatter(sum, kept[i], slope);
    }
    return score;
  }

  float bias_gradient = 0;  // of all rows so far

 private:
  // What the owners of hot slots ask for.
  __device__ void keep(const RowSum& sum, const RowHead& head, std::uint32_t at,
                       float slope) const {
    const std::uint32_t lane = threadIdx.x % kLanesOfWarp;
    if (lane == 0) send(hot_.window, at, slope, head);
    if constexpr (kQuads > 0) {
      float* const to = hot_.window.sums + std::size_t{at} * hot_.width + 4 * quad_;
      if (lane < kQuads && has_factors<kQuads>(job_.state, quad_)) sum.factors.factors[0].store(to);
    }
  }

  static constexpr int kLanes = kLanesOfEdge<kQuads>;
  static constexpr int kMany = kKept<kQuads>;

  __device__ void load(Edge& edge, const RowHead& head, std::uint32_t e) const {
    edge.slot = b_.slots[e];
    edge.x = value_of(b_, head, e);
    const bool is_hot = edge.slot < hot_.hot;
    if (quad_ == 0) {
      if (is_hot) {
        edge.linear[0] = One(hot_.linear[edge.slot]);
      } else {
        load_linear(edge.linear, linear_of(job_.state, edge.slot), job_.state.planes);
      }
    }
    if constexpr (kQuads > 0) {
      edge.v = load_quad<kQuads>(job_.state,
                                 is_hot ? hot_.factors + std::size_t{edge.slot} * hot_.width
                                        : all_factors_of(job_.state, edge.slot),
                                 quad_);
    }
  }

  __device__ void gather(RowSum& sum, const Edge& edge) const {
    One linear(sum.linear);
    if (quad_ == 0) Linear<One>::gather(linear, edge.linear[0], One(edge.x));
    sum.linear = linear.value;
    if constexpr (kQuads > 0) Machine{}.gather(sum.factors, &edge.v.v.x, 0, edge.x);
  }

  __device__ void scatter(const RowSum& sum, Edge& edge, float slope) const {
    const float linear = Linear<One>::scatter(One(edge.x), One(slope)).value;
    const bool is_hot = edge.slot < hot_.hot;
    if (is_hot && hot_.has_owners()) return;
    if constexpr (kQuads > 0) {
      Machine{}.scatter(sum.factors, &edge.v.v.x, 0, edge.x, slope, [&](int, Quad gradient) {
        if (!has_factors<kQuads>(job_.state, quad_)) return;
        if (is_hot) {
          add_four(hot_.gradient_of(replica_, edge.slot) + 4 * quad_, gradient);
          return;
        }
        float* const at = all_factors_of(job_.state, edge.slot) + 4 * quad_;
        Quad s[kMostPlanes] = {edge.v};
        load_others(s, at, hot_.width, job_.state.planes);
        add_step(job_.optimizer, s, at, hot_.width, gradient, job_.factors, 1.0f);
      });
    }
    if (quad_ != 0) return;
    if (is_hot) {
      atomicAdd(hot_.gradient_of(replica_, edge.slot) + hot_.width, linear);
      atomicAdd(hot_.counts + edge.slot, 1u);
      return;
    }
    add_linear_step(job_.optimizer, edge.linear, linear_of(job_.state, edge.slot), linear,
                    job_.linear, 1.0f);
  }

  const DeviceJob& job_;
  const BatchArrays& b_;
  const Hot& hot_;
  int quad_;
  std::uint32_t first_;
  std::uint32_t replica_;
};

// What a window's edges make of hot slots: a few lanes own a slot.
template <int kQuads>
__device__ void add_up_window(const DeviceState& state, const BatchArrays& b, const Hot& hot,
                              std::uint32_t window) {
  Group group = this_group<kQuads>();
  group.rank = threadIdx.x / kLanesOfGroup<kQuads>;
  const std::uint32_t end = b.window_segment[window + 1];
  for (std::uint32_t s = b.window_segment[window] + group.rank; s < end; s += kGroups<kQuads>) {
    const std::uint32_t slot = b.segment_slot[s], first = b.segment_begin[s];
    const std::uint32_t last = b.segment_begin[s + 1];
    const Quad v = load_quad<kQuads>(state, hot.factors + std::size_t{slot} * hot.width,
                                     group.lane % kLanesOfEdge<kQuads>);
    const auto gradient = gradient_of<kQuads, false>(state, b, hot.window, group, first, last, v);
    float* const to = hot.gradient_of(0, slot);
    if (group.lane < kQuads && has_factors<kQuads>(state, group.lane)) {
      float* const four = to + 4 * group.lane;
      four[0] += gradient.factors.v.x;
      four[1] += gradient.factors.v.y;
      four[2] += gradient.factors.v.z;
      four[3] += gradient.factors.v.w;
    }
    if (group.lane != 0) continue;
    to[hot.width] += gradient.linear;
    hot.counts[slot] += last - first;
  }
  __syncthreads();
}

// The losses that threads of a block have, to *loss.
__device__ void add_losses(double own, double* loss) {
  __shared__ double losses[kWarps];
  const unsigned warp = threadIdx.x / kLanesOfWarp;
  for (int step = kLanesOfWarp / 2; step >= 1; step /= 2)
    own += __shfl_xor_sync(kAllLanes, own, step);
  if (threadIdx.x % kLanesOfWarp == 0) losses[warp] = own;
  __syncthreads();
  if (threadIdx.x != 0) return;
  double sum = 0;
  for (const double part : losses) sum += part;
  atomicAdd(loss, sum);
}

template <int kQuads>
__global__ void __launch_bounds__(kThreads, 1)
    flow_kernel(DeviceJob job, BatchArrays b, FlowShape shape, double* loss) {
  const Hot hot = Hot::at(dynamic_shared<float>(), job.state, shape);
  double losses = 0;
  for (std::uint32_t tile = blockIdx.x; tile * shape.tile_rows < b.rows; tile += gridDim.x) {
    learn_tile(hot, job, shape, b.rows, tile,
               [&](const DeviceJob& now, std::uint32_t begin, std::uint32_t end) {
                 RowPass<kQuads> pass(now, b, hot);
                 const std::uint32_t lane = threadIdx.x % kLanesOfWarp;
                 for (std::uint32_t base = begin + threadIdx.x / kLanesOfWarp * kRowsOfWarp;
                      base < end; base += kWarps * kRowsOfWarp) {
                   float own = 0;  // the score of this lane's row
                   const auto learn = [&](const RowHead& of_row, std::uint32_t row, int i) {
                     const float score = pass.run(of_row, row - begin);
                     if (static_cast<int>(lane) == i) own = score;
                   };
                   const RowHead head = for_rows(b, base, end, learn);
                   if (lane < kRowsOfWarp && base + lane < end)
                     losses += loss_of_row(job.loss, head, own);
                 }
                 if (lane == 0) atomicAdd(hot.bias + 1, pass.bias_gradient);
                 __syncthreads();
                 if (hot.has_owners())
                   add_up_window<kQuads>(job.state, b, hot, begin / shape.step_rows);
               });
  }
  add_losses(losses, loss);
}

}  // namespace

std::size_t flow_shared_bytes(const DeviceState& state, const FlowShape& shape) noexcept {
  const std::size_t row = state.pairs > 0    ? flow_floats_weighted(state)
                          : state.fields > 0 ? flow_floats_by_field(state)
                                             : 0;
  return sizeof(float) * (row + Hot::floats(state, shape));
}

FlowShape flow_shape(const DeviceJob& job, std::uint32_t rows, std::size_t shared_bytes,
                     bool by_feature) {
  if (shared_bytes == 0) shared_bytes = device_shared_bytes();
  constexpr std::size_t kBeside = 1024;  // what kernels have beside it
  constexpr std::uint32_t kMostHot = 2048;
  const DeviceState& state = job.state;
  FlowShape shape;
  if (job.optimizer == Optimizer::kSgd) {
    shape.step_rows = 32;
  } else if (state.is_ffm()) {
    shape.step_rows = 128;
  }
  shape.by_feature = by_feature && state.fields == 0;
  shape.replicas = shape.by_feature                        ? 1
                   : state.width == 0                      ? 4
                   : state.width <= 8 && state.fields == 0 ? 2
                                                           : 1;
  const std::size_t none = flow_shared_bytes(state, shape) + kBeside;
  if (none > shared_bytes) {
    throw Error(ErrorCode::kInvalid,
                "train on a device: a row of " + std::to_string(state.fields) + " fields with k " +
                    std::to_string(4 * state.quads) + " takes " + std::to_string(none) +
                    " bytes of shared memory, but a " + "block of this device has " +
                    std::to_string(shared_bytes) + ". Use fewer fields, a smaller k, or the CPU");
  }
  shape.hot = 1;
  const std::size_t each = flow_shared_bytes(state, shape) + kBeside - none;
  shape.hot = static_cast<std::uint32_t>(
      std::min({std::size_t{state.slots}, std::size_t{kMostHot}, (shared_bytes - none) / each}));
  shape.blocks = std::max(1u, blocks_for(rows, shape.tile_rows));
  return shape;
}

unsigned blocks_after(const FlowShape& shape, std::uint64_t rows) noexcept {
  constexpr std::uint64_t kPart = 64;
  const std::uint64_t blocks = rows / (kPart * shape.step_rows);
  return static_cast<unsigned>(std::clamp<std::uint64_t>(blocks, 1, std::max(1u, shape.blocks)));
}

void flow_on_device(const DeviceJob& job, const BatchArrays& batch, const FlowShape& shape,
                    double* loss, StreamRef stream) {
  if (batch.rows == 0) return;  // an empty grid is a launch error
  if (job.state.pairs > 0) return flow_weighted(job, batch, shape, loss, stream);
  if (job.state.fields > 0) return flow_by_field(job, batch, shape, loss, stream);
  const LaunchShape grid{
      .grid = shape.blocks, .block = kThreads, .shared_bytes = flow_shared_bytes(job.state, shape)};
  for_quads(job.state, [&](auto quads) {
    launch(flow_kernel<quads()>, grid, stream, job, batch, shape, loss);
  });
}

}  // namespace motley::wide
