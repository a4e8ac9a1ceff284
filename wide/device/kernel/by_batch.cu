// Device half of deterministic training (kernels.h) for linear models and FM; an FwFM updates slots
// as an FM does.
#include "wide/device/kernel/by_field.h"
#include "wide/device/kernel/segments.cuh"

namespace motley::wide {
namespace {

template <int kQuads>
__global__ void __launch_bounds__(kThreads, 2)
    forward_kernel(DeviceJob job, BatchArrays b, DeviceSums out) {
  float* const sums = out.scores == nullptr ? out.sums : nullptr;
  score_rows<kQuads>(job.state, b, sums, [&](std::uint32_t row, const RowHead& head, float score) {
    if (out.scores != nullptr) {
      out.scores[row] = score;
      return;
    }
    send(out, row, slope_of_row(job.loss, head, score), head);
    out.losses[row] = loss_of_row(job.loss, head, score);
  });
}

template <int kQuads, bool kWeighted>
__global__ void __launch_bounds__(kThreads, 2)
    pieces_kernel(DeviceJob job, BatchArrays b, DeviceSums sums) {
  add_up_pieces<kQuads, kWeighted>(job.state, b, sums);
}

template <int kQuads, bool kWeighted>
__global__ void __launch_bounds__(kThreads, 2)
    update_kernel(DeviceJob job, BatchArrays b, DeviceSums sums) {
  constexpr int kLanes = kLanesOfEdge<kQuads>;
  const Group group = this_group<kQuads>();
  const int quad = group.lane % kLanes;
  for (std::uint32_t segment = group.rank; segment < b.segments; segment += group.all) {
    const std::uint32_t slot = b.segment_slot[segment];
    float* const at = all_factors_of(job.state, slot) + 4 * quad;
    const bool steps = group.lane < kQuads && has_factors<kQuads>(job.state, quad);
    Quad s[kMostPlanes] = {Quad(0.0f), Quad(0.0f), Quad(0.0f)};
    if (steps || (segment >= b.long_segments && has_factors<kQuads>(job.state, quad)))
      s[0] = Quad::load(at);
    const auto gradient =
        gradient_of_segment<kQuads, kWeighted>(job.state, b, sums, group, segment, s[0]);
    __syncwarp(group.mask);  // all have read what some will write
    const auto entries =
        static_cast<float>(b.segment_begin[segment + 1] - b.segment_begin[segment]);
    if (group.lane == 0) {
      One linear[kMostPlanes];
      float* const weight = linear_of(job.state, slot);
      load_linear(linear, weight, job.state.planes);
      step_linear(job.optimizer, linear, weight, gradient.linear, job.linear, entries);
    }
    if (steps) {
      load_others(s, at, job.state.width, job.state.planes);
      step(job.optimizer, s, gradient.factors, job.factors, entries);
      store(s, at, job.state.width, job.state.planes);
    }
  }
}

// One block: thread t has rows t, t + 256, …, then halves are added to each other.
__global__ void __launch_bounds__(kThreads, 2)
    shared_kernel(DeviceJob job, std::uint32_t rows, DeviceSums sums, double* loss) {
  __shared__ double slopes[kThreads];
  __shared__ double losses[kThreads];
  double slope = 0, own = 0;
  for (std::uint32_t row = threadIdx.x; row < rows; row += kThreads) {
    slope += static_cast<double>(sums.slopes[2 * std::size_t{row}]);
    own += sums.losses[row];
  }
  slopes[threadIdx.x] = slope;
  losses[threadIdx.x] = own;
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      slopes[threadIdx.x] += slopes[threadIdx.x + half];
      losses[threadIdx.x] += losses[threadIdx.x + half];
    }
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  *loss += losses[0];
  One s[kMostPlanes];
  float* const bias = job.state.shared + Layout::kBias;
  s[0] = One::load(bias);
  load_others(s, bias, job.state.shared_stride, job.state.planes);
  step(job.optimizer, s, One(static_cast<float>(slopes[0])), job.shared, 1.0f);
  store(s, bias, job.state.shared_stride, job.state.planes);
  job.state.shared[Layout::kUpdates] += 1;
}

LaunchShape shape_of(std::size_t threads, unsigned blocks) {
  return {.grid = blocks > 0 ? blocks : blocks_for(threads, kThreads), .block = kThreads};
}

template <int kQuads, bool kWeighted>
void update_slots(const DeviceJob& job, const BatchArrays& batch, const DeviceSums& sums,
                  StreamRef stream, unsigned blocks) {
  if (batch.pieces > 0) {
    launch(pieces_kernel<kQuads, kWeighted>,
           shape_of(std::size_t{batch.pieces} * kLanesOfGroup<kQuads>, blocks), stream, job, batch,
           sums);
  }
  launch(update_kernel<kQuads, kWeighted>,
         shape_of(std::size_t{batch.segments} * kLanesOfGroup<kQuads>, blocks), stream, job, batch,
         sums);
}

}  // namespace

void forward_on_device(const DeviceJob& job, const BatchArrays& batch, const DeviceSums& sums,
                       StreamRef stream, unsigned blocks) {
  if (batch.rows == 0) return;  // an empty grid is a launch error
  if (job.state.pairs > 0) return forward_weighted(job, batch, sums, stream, blocks);
  if (job.state.fields > 0) return forward_by_field(job, batch, sums, stream, blocks);
  for_quads(job.state, [&](auto quads) {
    launch(forward_kernel<quads()>,
           shape_of(std::size_t{batch.rows} * kLanesOfWarp / kRowsOfWarp + 1, blocks), stream, job,
           batch, sums);
  });
}

void update_on_device(const DeviceJob& job, const BatchArrays& batch, const DeviceSums& sums,
                      StreamRef stream, unsigned blocks) {
  if (batch.segments == 0) return;
  if (job.state.is_ffm()) return update_by_field(job, batch, sums, stream, blocks);
  for_quads(job.state, [&](auto quads) {
    if constexpr (quads() > 0) {
      if (job.state.pairs > 0) return update_slots<quads(), true>(job, batch, sums, stream, blocks);
    }
    update_slots<quads(), false>(job, batch, sums, stream, blocks);
  });
}

void update_shared_on_device(const DeviceJob& job, std::uint32_t rows, const DeviceSums& sums,
                             double* loss, StreamRef stream) {
  if (job.state.pairs > 0) update_pairs(job, rows, sums, stream);
  launch(shared_kernel, {.block = kThreads}, stream, job, rows, sums, loss);
}

}  // namespace motley::wide
