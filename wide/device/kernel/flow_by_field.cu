// Device half of asynchronous training (kernels.h) for FFM. A block has a row; each of its threads
// keeps the cells of features that it has read until it has updated them.
#include "wide/device/kernel/field_rows.cuh"
#include "wide/device/kernel/flow_row.cuh"

namespace motley::wide {
namespace {

// kKept: cells of four factors that a thread keeps.
template <int kKept>
class FieldPass {
 public:
  __device__ FieldPass(const DeviceJob& job, const FieldTile& tile, const Hot& hot,
                       const FlowRow& row)
      : job_(job), tile_(tile), order_(tile), hot_(hot), row_(row) {}

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
    const std::uint32_t cells = (head.end - head.begin) * order_.stride;
    row_.bring_near(head);
    __syncthreads();
    row_.find_fields(tile_, head);
    for (std::uint32_t i = threadIdx.x; i < tile_.fields * tile_.quads; i += kThreads)
      tile_.self[i] = 0;
    __syncthreads();
    clear_unset();
    __syncthreads();
    Quad kept[kKept];
#pragma unroll
#pragma GCC unroll 16
    for (int i = 0; i < kKept; ++i) {
      const std::uint32_t c = threadIdx.x + static_cast<unsigned>(i) * kThreads;
      if (c < cells) {
        kept[i] = weights_of(head, c);
        gather(head, c, kept[i]);
      }
    }
    for (std::uint32_t c = threadIdx.x + kKept * kThreads; c < cells; c += kThreads)
      gather(head, c, weights_of(head, c));
    One linear[kMostPlanes];
    float part = row_.gather_linear(head, linear);
    __syncthreads();
    part += score_of_cells(tile_);
    const float score = hot_.bias[0] + sum_of_block(part, tile_.sums);
    const float slope = slope_of_row(job_.loss, head, score);
    *slopes += slope;
#pragma unroll
#pragma GCC unroll 16
    for (int i = 0; i < kKept; ++i) {
      const std::uint32_t c = threadIdx.x + static_cast<unsigned>(i) * kThreads;
      if (c < cells) scatter(head, c, kept[i], slope);
    }
    for (std::uint32_t c = threadIdx.x + kKept * kThreads; c < cells; c += kThreads)
      scatter(head, c, weights_of(head, c), slope);
    row_.scatter_linear(head, linear, slope);
    __syncthreads();
    return score;
  }

  // Cells of T that no edge sets on its own: of fields with none or several, and where a field
  // meets itself.
  __device__ void clear_unset() const {
    const std::uint32_t all = tile_.fields * tile_.fields * tile_.quads;
    for (std::uint32_t c = threadIdx.x; c < all; c += kThreads) {
      const std::uint32_t pair = c / tile_.quads;
      const std::uint32_t to = pair / tile_.fields, field = pair % tile_.fields;
      if (to == field || tile_.count(field) != 1) tile_.cells[c] = Quad(0.0f);
    }
  }

  // Four factors of an edge, the c-th of the row.
  __device__ Quad weights_of(const RowHead& head, std::uint32_t c) const {
    const QuadsInOrder::Place p = order_[c];
    const std::uint32_t slot = row_.slot_of(head, head.begin + p.of);
    return Quad::load(slot < hot_.hot ? hot_.factors + std::size_t{slot} * hot_.width + 4 * p.at
                                      : all_factors_of(job_.state, slot) + 4 * p.at);
  }

  __device__ void gather(const RowHead& head, std::uint32_t c, const Quad& w) const {
    const QuadsInOrder::Place p = order_[c];
    if (!order_.has(p)) return;
    const std::uint32_t field = row_.field_of(head, head.begin + p.of);
    const Quad t = w * Quad(row_.x_of(head, head.begin + p.of));
    const bool alone = tile_.count(field) == 1;
    if (alone) {
      if (p.to != field) tile_.cell(p.to, field, p.quad) = t;
      return;
    }
    add_four(&tile_.cell(p.to, field, p.quad).v.x, t);
    if (p.to == field) atomicAdd(tile_.self + field * tile_.quads + p.quad, total(t * t));
  }

  [[gnu::always_inline]] __device__ void scatter(const RowHead& head, std::uint32_t c,
                                                 const Quad& w, float slope) const {
    const QuadsInOrder::Place p = order_[c];
    if (!order_.has(p)) return;
    const std::uint32_t e = head.begin + p.of;
    const std::uint32_t field = row_.field_of(head, e), slot = row_.slot_of(head, e);
    if (!job_.complete && !meets(tile_, field, p.to)) return;
    const float x = row_.x_of(head, e);
    Quad t = tile_.cell(field, p.to, p.quad);
    if (p.to == field && tile_.count(field) > 1) t = t - w * Quad(x);
    const Quad gradient = Quad(slope * x) * t;
    if (slot < hot_.hot) {
      add_four(hot_.gradient_of(0, slot) + 4 * p.at, gradient);
      return;
    }
    float* const at = all_factors_of(job_.state, slot) + 4 * p.at;
    Quad s[kMostPlanes] = {w};
    load_others(s, at, job_.state.width, job_.state.planes);
    add_step(job_.optimizer, s, at, job_.state.width, gradient, job_.factors, 1.0f);
  }

  const DeviceJob& job_;
  const FieldTile& tile_;
  const QuadsInOrder order_;
  const Hot& hot_;
  const FlowRow& row_;
};

template <int kKept>
__global__ void __launch_bounds__(kThreads, 1)
    flow_fields_kernel(DeviceJob job, BatchArrays b, FlowShape shape, double* loss) {
  float* const memory = dynamic_shared<float>();
  float* const near = memory + FieldTile::floats(job.state);
  const FieldTile of_row = FieldTile::at(memory, job.state);
  const Hot hot = Hot::at(near + FlowRow::floats(), job.state, shape);
  double losses = 0;
  for (std::uint32_t tile = blockIdx.x; tile * shape.tile_rows < b.rows; tile += gridDim.x) {
    learn_tile(hot, job, shape, b.rows, tile,
               [&](const DeviceJob& now, std::uint32_t begin, std::uint32_t end) {
                 const FlowRow row(now, b, hot, near);
                 FieldPass<kKept> pass(now, of_row, hot, row);
                 losses += pass.learn(begin, end);
               });
  }
  if (threadIdx.x == 0) atomicAdd(loss, losses);
}

}  // namespace

std::size_t flow_floats_by_field(const DeviceState& state) noexcept {
  return FieldTile::floats(state) + FlowRow::floats();
}

void flow_by_field(const DeviceJob& job, const BatchArrays& batch, const FlowShape& shape,
                   double* loss, StreamRef stream) {
  const LaunchShape grid{
      .grid = shape.blocks, .block = kThreads, .shared_bytes = flow_shared_bytes(job.state, shape)};
  // All cells of a row of 39 features of 39 fields are kept, with k up to 8.
  const auto run = [&](auto kept) {
    launch(flow_fields_kernel<kept()>, grid, stream, job, batch, shape, loss);
  };
  if (job.state.quads == 1) return run(std::integral_constant<int, 7>{});
  if (job.state.quads == 2) return run(std::integral_constant<int, 12>{});
  run(std::integral_constant<int, 16>{});
}

}  // namespace motley::wide
