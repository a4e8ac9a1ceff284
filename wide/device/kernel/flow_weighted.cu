// Device half of asynchronous training (kernels.h) for FwFM. A block has a row; each of its threads
// keeps the factors that it has read until it has updated them.
#include "wide/device/kernel/flow_row.cuh"
#include "wide/device/kernel/weighted_rows.cuh"

namespace motley::wide {
namespace {

// Items of which a thread keeps the first edge: of 39 fields all, up to 104 factors.
constexpr int kKept = 4;

class WeightedPass {
 public:
  __device__ WeightedPass(const DeviceJob& job, const WeightedTile& tile, const Hot& hot,
                          const FlowRow& row)
      : job_(job), tile_(tile), hot_(hot), row_(row) {}

  // Rows [begin, end); returns their losses, in thread 0. Ends with a barrier.
  __device__ double learn(std::uint32_t begin, std::uint32_t end) const {
    double losses = 0;
    float slopes = 0;
    row_.for_rows_of_block(begin, end, [&](const RowHead& head) {
      const float score = run(head, &slopes);
      if (threadIdx.x == 0) losses += loss_of_row(job_.loss, head, score);
    });
    if (threadIdx.x == 0) hot_.bias[1] = slopes;
    __syncthreads();
    return losses;
  }

 private:
  // Returns the row's score, in all threads.
  __device__ float run(const RowHead& head, float* slopes) const {
    row_.bring_near(head);
    __syncthreads();
    row_.find_fields(tile_, head);
    __syncthreads();
    Quad kept[kKept];
#pragma unroll
#pragma GCC unroll 16
    for (int i = 0; i < kKept; ++i) {
      const std::uint32_t item = threadIdx.x + static_cast<unsigned>(i) * kThreads;
      if (item < tile_.items()) kept[i] = gather(head, item);
    }
    for (std::uint32_t item = threadIdx.x + kKept * kThreads; item < tile_.items();
         item += kThreads)
      gather(head, item);
    One linear[kMostPlanes];
    float part = row_.gather_linear(head, linear);
    __syncthreads();
    part += score_of_items(tile_);
    const float score = hot_.bias[0] + sum_of_block(part, tile_.warps);
    const float slope = slope_of_row(job_.loss, head, score);
    *slopes += slope;
    scatter_pairs(tile_, slope);
#pragma unroll
#pragma GCC unroll 16
    for (int i = 0; i < kKept; ++i) {
      const std::uint32_t item = threadIdx.x + static_cast<unsigned>(i) * kThreads;
      if (item < tile_.items()) scatter(head, item, slope, &kept[i]);
    }
    for (std::uint32_t item = threadIdx.x + kKept * kThreads; item < tile_.items();
         item += kThreads)
      scatter(head, item, slope, nullptr);
    row_.scatter_linear(head, linear, slope);
    __syncthreads();
    return score;
  }

  __device__ Quad weights_of(std::uint32_t slot, std::uint32_t quad) const {
    return Quad::load(slot < hot_.hot ? hot_.factors + std::size_t{slot} * hot_.width + 4 * quad
                                      : all_factors_of(job_.state, slot) + 4 * quad);
  }
  __device__ Quad gather(const RowHead& head, std::uint32_t item) const {
    return gather_item(
        tile_, item,
        [&](std::uint32_t e, std::uint32_t quad) {
          return weights_of(row_.slot_of(head, e), quad);
        },
        [&](std::uint32_t e) { return row_.x_of(head, e); });
  }

  // `first`: the weights of the item's first edge, or null.
  __device__ void scatter(const RowHead& head, std::uint32_t item, float slope,
                          const Quad* first) const {
    const std::uint32_t field = item / tile_.quads, quad = item % tile_.quads;
    const float own = tile_.r_of(field, field);
    const FieldWeightedMachine<Quad> machine{.fields = 1, .factors = 4, .shared = &own};
    for (std::uint32_t e = tile_.begin[field]; e < tile_.begin[field + 1]; ++e) {
      const std::uint32_t slot = row_.slot_of(head, e);
      const bool kept = first != nullptr && e == tile_.begin[field];
      const Quad v = kept ? *first : weights_of(slot, quad);
      machine.scatter({.mixed = &tile_.mixed[tile_.place(item)].v.x}, &v.v.x, 0, row_.x_of(head, e),
                      slope, [&](int, Quad gradient) { learn(slot, quad, v, gradient); });
    }
  }
  __device__ void learn(std::uint32_t slot, std::uint32_t quad, const Quad& v,
                        const Quad& gradient) const {
    if (slot < hot_.hot) {
      add_four(hot_.gradient_of(0, slot) + 4 * quad, gradient);
      return;
    }
    float* const at = all_factors_of(job_.state, slot) + 4 * quad;
    Quad s[kMostPlanes] = {v};
    load_others(s, at, job_.state.width, job_.state.planes);
    add_step(job_.optimizer, s, at, job_.state.width, gradient, job_.factors, 1.0f);
  }

  const DeviceJob& job_;
  const WeightedTile& tile_;
  const Hot& hot_;
  const FlowRow& row_;
};

__global__ void __launch_bounds__(kThreads, 1)
    flow_weighted_kernel(DeviceJob job, BatchArrays b, FlowShape shape, double* loss) {
  float* const memory = dynamic_shared<float>();
  float* const near = memory + WeightedTile::floats(job.state);
  const Hot hot = Hot::at(near + FlowRow::floats(), job.state, shape);
  const WeightedTile of_row =
      WeightedTile::at(memory, job.state, hot.pairs, hot.pairs + job.state.pairs);
  double losses = 0;
  for (std::uint32_t tile = blockIdx.x; tile * shape.tile_rows < b.rows; tile += gridDim.x) {
    learn_tile(hot, job, shape, b.rows, tile,
               [&](const DeviceJob& now, std::uint32_t begin, std::uint32_t end) {
                 const FlowRow row(now, b, hot, near);
                 WeightedPass pass(now, of_row, hot, row);
                 losses += pass.learn(begin, end);
               });
  }
  if (threadIdx.x == 0) atomicAdd(loss, losses);
}

}  // namespace

std::size_t flow_floats_weighted(const DeviceState& state) noexcept {
  return WeightedTile::floats(state) + FlowRow::floats();
}

void flow_weighted(const DeviceJob& job, const BatchArrays& batch, const FlowShape& shape,
                   double* loss, StreamRef stream) {
  const LaunchShape grid{
      .grid = shape.blocks, .block = kThreads, .shared_bytes = flow_shared_bytes(job.state, shape)};
  launch(flow_weighted_kernel, grid, stream, job, batch, shape, loss);
}

}  // namespace motley::wide
