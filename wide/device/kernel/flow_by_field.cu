// Device half of asynchronous training (kernels.h) for FFM. A block has a row; each of its threads
// keeps the cells of features that it has read until it has updated them.
#include "wide/device/kernel/field_rows.cuh"
#include "wide/device/kernel/hot.cuh"

namespace motley::wide {
namespace {

// Cells of four factors that a thread keeps: all of a row of 39 features of 39 fields.
constexpr int kKept = 6;

// The row's first edges, in shared memory, as each of their cells asks for them.
constexpr std::uint32_t kNear = 128;
struct NearEdges {
  std::uint32_t* slots;   // [kNear]
  std::uint32_t* fields;  // [kNear]
  float* values;          // [kNear]

  __device__ static NearEdges at(float* memory) {
    auto* const slots = reinterpret_cast<std::uint32_t*>(memory);
    return {slots, slots + kNear, memory + 2 * kNear};
  }
  __host__ __device__ static constexpr std::size_t floats() { return 3 * kNear; }
};

class FieldPass {
 public:
  __device__ FieldPass(const DeviceJob& job, const BatchArrays& b, const FieldTile& tile,
                       const NearEdges& near, const Hot& hot)
      : job_(job), b_(b), tile_(tile), near_(near), hot_(hot) {}

  // Returns the row's score, in all threads.
  __device__ float run(const RowHead& head, float* slopes) {
    const std::uint32_t fields = tile_.fields;
    const std::uint32_t cells = (head.end - head.begin) * fields;
    find_fields(tile_, b_, head);
    bring_near(head);
    for (std::uint32_t f = threadIdx.x; f < fields; f += kThreads) tile_.self[f] = 0;
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
    float part = 0;
    One linear[kMostPlanes];
    for (std::uint32_t e = head.begin + threadIdx.x; e < head.end; e += kThreads) {
      load_weight(linear, slot_of(head, e));
      part += linear[0].value * x_of(head, e);
    }
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
    for (std::uint32_t e = head.begin + threadIdx.x; e < head.end; e += kThreads) {
      // Of up to 256 features each thread has its own still.
      if (head.end - head.begin > kThreads) load_weight(linear, slot_of(head, e));
      scatter_linear(linear, slot_of(head, e), slope * x_of(head, e));
    }
    __syncthreads();
    return score;
  }

 private:
  __device__ void bring_near(const RowHead& head) const {
    for (std::uint32_t i = threadIdx.x; i < kNear && head.begin + i < head.end; i += kThreads) {
      near_.slots[i] = b_.slots[head.begin + i];
      near_.fields[i] = b_.fields[head.begin + i];
      near_.values[i] = value_of(b_, head, head.begin + i);
    }
  }
  __device__ std::uint32_t slot_of(const RowHead& head, std::uint32_t e) const {
    return e - head.begin < kNear ? near_.slots[e - head.begin] : b_.slots[e];
  }
  __device__ std::uint32_t field_of(const RowHead& head, std::uint32_t e) const {
    return e - head.begin < kNear ? near_.fields[e - head.begin] : b_.fields[e];
  }
  __device__ float x_of(const RowHead& head, std::uint32_t e) const {
    return e - head.begin < kNear ? near_.values[e - head.begin] : value_of(b_, head, e);
  }

  // Cells of T that no edge sets on its own: of fields with none or several, and where a field
  // meets itself.
  __device__ void clear_unset() const {
    const std::uint32_t all = tile_.fields * tile_.fields;
    for (std::uint32_t c = threadIdx.x; c < all; c += kThreads) {
      const std::uint32_t to = c / tile_.fields, field = c % tile_.fields;
      if (to == field || tile_.count(field) != 1) tile_.cells[c] = Quad(0.0f);
    }
  }

  // The factors of an edge for a field: of cell c, edge c / fields, field c % fields.
  __device__ Quad weights_of(const RowHead& head, std::uint32_t c) const {
    const std::uint32_t slot = slot_of(head, head.begin + c / tile_.fields);
    const std::uint32_t to = c % tile_.fields;
    return Quad::load(slot < hot_.hot ? hot_.factors + std::size_t{slot} * hot_.width + 4 * to
                                      : field_factors_of(job_.state, slot) + 4 * to);
  }

  __device__ void gather(const RowHead& head, std::uint32_t c, const Quad& w) const {
    const std::uint32_t e = head.begin + c / tile_.fields, to = c % tile_.fields;
    const std::uint32_t field = field_of(head, e);
    const Quad t = w * Quad(x_of(head, e));
    const bool alone = tile_.count(field) == 1;
    if (alone) {
      if (to != field) tile_.cell(to, field) = t;
      return;
    }
    add_four(&tile_.cell(to, field).v.x, t);
    if (to == field) atomicAdd(tile_.self + field, total(t * t));
  }

  __device__ void scatter(const RowHead& head, std::uint32_t c, const Quad& w, float slope) const {
    const std::uint32_t e = head.begin + c / tile_.fields, to = c % tile_.fields;
    const std::uint32_t field = field_of(head, e), slot = slot_of(head, e);
    if (!job_.complete && !meets(tile_, field, to)) return;
    const float x = x_of(head, e);
    Quad t = tile_.cell(field, to);
    if (to == field && tile_.count(field) > 1) t = t - w * Quad(x);
    const Quad gradient = Quad(slope * x) * t;
    if (slot < hot_.hot) {
      add_four(hot_.gradient_of(0, slot) + 4 * to, gradient);
      return;
    }
    float* const at = field_factors_of(job_.state, slot) + 4 * to;
    Quad s[kMostPlanes] = {w};
    load_others(s, at, job_.state.width, job_.state.planes);
    add_step(job_.optimizer, s, at, job_.state.width, gradient, job_.factors, 1.0f);
  }

  __device__ void load_weight(One (&linear)[kMostPlanes], std::uint32_t slot) const {
    if (slot < hot_.hot) {
      linear[0] = One(hot_.linear[slot]);
    } else {
      load_linear(linear, linear_of(job_.state, slot), job_.state.planes);
    }
  }
  __device__ void scatter_linear(One (&linear)[kMostPlanes], std::uint32_t slot,
                                 float gradient) const {
    if (slot < hot_.hot) {
      atomicAdd(hot_.gradient_of(0, slot) + hot_.width, gradient);
      atomicAdd(hot_.counts + slot, 1u);
      return;
    }
    add_linear_step(job_.optimizer, linear, linear_of(job_.state, slot), gradient, job_.linear,
                    1.0f);
  }

  const DeviceJob& job_;
  const BatchArrays& b_;
  const FieldTile& tile_;
  const NearEdges& near_;
  const Hot& hot_;
};

__host__ __device__ constexpr std::size_t floats_beside_hot(std::size_t fields) {
  return FieldTile::floats(fields) + NearEdges::floats();
}

__global__ void __launch_bounds__(kThreads, 1)
    flow_fields_kernel(DeviceJob job, BatchArrays b, FlowShape shape, double* loss) {
  float* const memory = dynamic_shared<float>();
  const FieldTile of_row = FieldTile::at(memory, job.state.fields);
  const NearEdges near = NearEdges::at(memory + FieldTile::floats(job.state.fields));
  const Hot hot = Hot::at(memory + floats_beside_hot(job.state.fields), job.state.width, shape);
  double losses = 0;
  for (std::uint32_t tile = blockIdx.x; tile * shape.tile_rows < b.rows; tile += gridDim.x) {
    learn_tile(hot, job, shape, b.rows, tile,
               [&](const DeviceJob& now, std::uint32_t begin, std::uint32_t end) {
                 FieldPass pass(now, b, of_row, near, hot);
                 float slopes = 0;
                 // Each warp reads the heads of so many rows at once; the block has one row at a
                 // time.
                 for (std::uint32_t base = begin; base < end; base += kRowsOfWarp) {
                   for_rows(b, base, end, [&](const RowHead& head, std::uint32_t, int) {
                     const float score = pass.run(head, &slopes);
                     if (threadIdx.x == 0) losses += loss_of_row(job.loss, head, score);
                   });
                 }
                 if (threadIdx.x == 0) hot.bias[1] = slopes;
                 __syncthreads();
               });
  }
  if (threadIdx.x == 0) atomicAdd(loss, losses);
}

}  // namespace

std::size_t flow_floats(std::uint32_t fields) noexcept { return floats_beside_hot(fields); }

void flow_by_field(const DeviceJob& job, const BatchArrays& batch, const FlowShape& shape,
                   double* loss, StreamRef stream) {
  const LaunchShape grid{
      .grid = shape.blocks, .block = kThreads, .shared_bytes = flow_shared_bytes(job.state, shape)};
  launch(flow_fields_kernel, grid, stream, job, batch, shape, loss);
}

}  // namespace motley::wide
