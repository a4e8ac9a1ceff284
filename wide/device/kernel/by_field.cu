// Device half of deterministic training (kernels.h) for FFM. A block scores a row; a warp updates
// 32 cells of a slot's factors, and reads what the slot's rows have for them.
#include "wide/device/kernel/by_field.h"
#include "wide/device/kernel/field_segments.cuh"

namespace motley::wide {
namespace {

__global__ void __launch_bounds__(kThreads, 2)
    forward_fields_kernel(DeviceJob job, BatchArrays b, DeviceSums out) {
  float* const sums = out.scores == nullptr ? out.sums : nullptr;
  score_field_rows(job.state, b, sums, [&](std::uint32_t row, const RowHead& head, float score) {
    if (out.scores != nullptr) {
      out.scores[row] = score;
      return;
    }
    send(out, row, slope_of_row(job.loss, head, score), head);
    out.losses[row] = loss_of_row(job.loss, head, score);
  });
}

__global__ void __launch_bounds__(kThreads, 2)
    pieces_of_fields_kernel(DeviceJob job, BatchArrays b, DeviceSums sums) {
  add_up_field_pieces(job.state, b, sums);
}

__global__ void __launch_bounds__(kThreads, 2)
    update_fields_kernel(DeviceJob job, BatchArrays b, DeviceSums sums) {
  const DeviceState& state = job.state;
  for_cells(b.segments, state.quads_of_fields(), [&](std::uint32_t segment, std::uint32_t at) {
    const std::uint32_t slot = b.segment_slot[segment];
    const auto entries =
        static_cast<float>(b.segment_begin[segment + 1] - b.segment_begin[segment]);
    if (at == 0) {
      const float gradient = linear_gradient_of_segment(state, b, sums, segment);
      One linear[kMostPlanes];
      load_linear(linear, linear_of(state, slot), state.planes);
      step_linear(job.optimizer, linear, linear_of(state, slot), gradient, job.linear, entries);
    }
    if (at >= state.quads_of_fields()) return;
    float* const to = all_factors_of(state, slot) + 4 * at;
    Quad s[kMostPlanes];
    s[0] = Quad::load(to);
    const Quad gradient = gradient_of_cell_of_segment(state, b, sums, segment, at, s[0]);
    // Factors for fields that no sample of the slot had stay as they are.
    if (!job.complete && !(total(gradient * gradient) > 0)) return;
    load_others(s, to, state.width, state.planes);
    step(job.optimizer, s, gradient, job.factors, entries);
    store(s, to, state.width, state.planes);
  });
}

unsigned blocks_of(std::size_t warps, unsigned blocks) {
  return blocks > 0 ? blocks : blocks_for(warps * kLanesOfWarp, kThreads);
}

}  // namespace

void forward_by_field(const DeviceJob& job, const BatchArrays& batch, const DeviceSums& sums,
                      StreamRef stream, unsigned blocks) {
  const std::size_t bytes = sizeof(float) * FieldTile::floats(job.state);
  const LaunchShape shape{.grid = blocks > 0 ? blocks : blocks_for(batch.rows, 1),
                          .block = kThreads,
                          .shared_bytes = bytes};
  launch(forward_fields_kernel, shape, stream, job, batch, sums);
}

void update_by_field(const DeviceJob& job, const BatchArrays& batch, const DeviceSums& sums,
                     StreamRef stream, unsigned blocks) {
  const std::size_t chunks = (job.state.quads_of_fields() + kLanesOfWarp - 1) / kLanesOfWarp;
  const auto shape = [&](std::size_t units) {
    return LaunchShape{.grid = blocks_of(units * chunks, blocks), .block = kThreads};
  };
  if (batch.pieces > 0)
    launch(pieces_of_fields_kernel, shape(batch.pieces), stream, job, batch, sums);
  launch(update_fields_kernel, shape(batch.segments), stream, job, batch, sums);
}

}  // namespace motley::wide
