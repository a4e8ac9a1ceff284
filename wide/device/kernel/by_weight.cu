// Device half of deterministic training (kernels.h) for FwFM: rows, of which a block has one at a
// time, and pairs of fields. Gradients of pairs are added up in chunks of rows, always the same
// ones.
#include "wide/device/kernel/rules.cuh"
#include "wide/device/kernel/weighted_rows.cuh"

namespace motley::wide {
namespace {

// A row of the batch: its score, and, but for scores alone, what it sends.
__device__ void forward_row(const DeviceJob& job, const BatchArrays& b, const DeviceSums& out,
                            const WeightedTile& tile, std::uint32_t row) {
  const DeviceState& state = job.state;
  const RowHead head = head_at(b, row);
  find_fields(tile, head, [&](std::uint32_t e) { return b.fields[e]; });
  __syncthreads();
  for (std::uint32_t item = threadIdx.x; item < tile.items(); item += kThreads) {
    gather_item(
        tile, item,
        [&](std::uint32_t e, std::uint32_t quad) {
          return Quad::load(all_factors_of(state, b.slots[e]) + 4 * quad);
        },
        [&](std::uint32_t e) { return value_of(b, head, e); });
  }
  float part = gather_linear(state, b, head);
  __syncthreads();
  part += score_of_items(tile);
  const float score = state.shared[Layout::kBias] + sum_of_block(part, tile.warps);
  if (out.scores != nullptr) {
    if (threadIdx.x == 0) out.scores[row] = score;
  } else {
    const float slope = slope_of_row(job.loss, head, score);
    if (threadIdx.x == 0) {
      send(out, row, slope, head);
      out.losses[row] = loss_of_row(job.loss, head, score);
    }
    float* const sent = out.sums + std::size_t{row} * tile.items() * 4;
    for (std::uint32_t item = threadIdx.x; item < tile.items(); item += kThreads)
      tile.mixed[tile.place(item)].store(sent + 4 * std::size_t{item});
    scatter_pairs(tile, slope);
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads, 2)
    forward_weighted_kernel(DeviceJob job, BatchArrays b, DeviceSums out) {
  const DeviceState& state = job.state;
  float* const memory = dynamic_shared<float>();
  float* const r = memory + WeightedTile::floats(state);
  float* const gradients = r + state.pairs;
  const WeightedTile tile = WeightedTile::at(memory, state, r, gradients);
  for (std::uint32_t i = threadIdx.x; i < state.pairs; i += kThreads)
    r[i] = state.shared[Layout::kPairs + i];
  for (std::uint32_t chunk = blockIdx.x; chunk * kChunkRows < b.rows; chunk += gridDim.x) {
    for (std::uint32_t i = threadIdx.x; i < state.pairs; i += kThreads) gradients[i] = 0;
    __syncthreads();
    const std::uint32_t first = chunk * kChunkRows;
    for (std::uint32_t i = 0; i < kChunkRows && first + i < b.rows; ++i)
      forward_row(job, b, out, tile, first + i);
    if (out.scores != nullptr) continue;
    float* const to = out.pairs + std::size_t{chunk} * state.pairs;
    for (std::uint32_t i = threadIdx.x; i < state.pairs; i += kThreads) to[i] = gradients[i];
  }
}

__global__ void __launch_bounds__(kThreads, 2)
    pairs_kernel(DeviceJob job, std::uint32_t chunks, DeviceSums sums) {
  const DeviceState& state = job.state;
  const std::uint32_t pair = blockIdx.x * kThreads + threadIdx.x;
  if (pair >= state.pairs) return;
  float gradient = 0;
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk)
    gradient += sums.pairs[std::size_t{chunk} * state.pairs + pair];
  if (gradient == 0) return;  // of fields that did not meet
  float* const at = state.shared + Layout::kPairs + pair;
  One s[kMostPlanes];
  s[0] = One::load(at);
  load_others(s, at, state.shared_stride, state.planes);
  step(job.optimizer, s, One(gradient), job.shared, 1.0f);
  store(s, at, state.shared_stride, state.planes);
}

}  // namespace

void forward_weighted(const DeviceJob& job, const BatchArrays& batch, const DeviceSums& sums,
                      StreamRef stream, unsigned blocks) {
  const std::size_t floats = WeightedTile::floats(job.state) + 2 * std::size_t{job.state.pairs};
  const LaunchShape shape{.grid = blocks > 0 ? blocks : blocks_for(chunks_of(batch.rows), 1),
                          .block = kThreads,
                          .shared_bytes = sizeof(float) * floats};
  launch(forward_weighted_kernel, shape, stream, job, batch, sums);
}

void update_pairs(const DeviceJob& job, std::uint32_t rows, const DeviceSums& sums,
                  StreamRef stream) {
  const LaunchShape shape{.grid = (job.state.pairs + kThreads - 1) / kThreads, .block = kThreads};
  launch(pairs_kernel, shape, stream, job, chunks_of(rows), sums);
}

}  // namespace motley::wide
