#include "test/bench/wide_gpu/three_stage.h"
#include "wide/device/kernel/field_segments.cuh"
#include "wide/device/kernel/segments.cuh"

namespace motley::wide {
namespace {

template <int kQuads>
__global__ void __launch_bounds__(kThreads, 2)
    product_kernel(DeviceJob job, BatchArrays b, DeviceSums out) {
  score_rows<kQuads>(job.state, b, out.sums, [&](std::uint32_t row, const RowHead&, float score) {
    out.scores[row] = score;
  });
}
__global__ void __launch_bounds__(kThreads, 2)
    product_of_fields_kernel(DeviceJob job, BatchArrays b, DeviceSums out) {
  score_field_rows(job.state, b, out.sums, [&](std::uint32_t row, const RowHead&, float score) {
    out.scores[row] = score;
  });
}

__global__ void __launch_bounds__(kThreads, 2)
    loss_kernel(DeviceJob job, BatchArrays b, DeviceSums sums) {
  for (std::uint32_t row = blockIdx.x * kThreads + threadIdx.x; row < b.rows;
       row += gridDim.x * kThreads) {
    const RowHead head = head_at(b, row);
    const float score = sums.scores[row];
    send(sums, row, slope_of_row(job.loss, head, score), head);
    sums.losses[row] = loss_of_row(job.loss, head, score);
  }
}

template <int kQuads>
__global__ void __launch_bounds__(kThreads, 2)
    pieces_of_product_kernel(DeviceJob job, BatchArrays b, DeviceSums sums) {
  add_up_pieces<kQuads, false>(job.state, b, sums);
}
__global__ void __launch_bounds__(kThreads, 2)
    pieces_of_field_product_kernel(DeviceJob job, BatchArrays b, DeviceSums sums) {
  add_up_field_pieces(job.state, b, sums);
}

// Of all segments the factors, then of all the linear one: words that are moved together lie so.
struct GradientPlace {
  float* factors;
  float* linear;
};
__device__ GradientPlace place_of(const DeviceState& state, const BatchArrays& b, float* gradients,
                                  std::uint32_t segment) {
  return {gradients + std::size_t{segment} * state.width,
          gradients + std::size_t{b.segments} * state.width + segment};
}

template <int kQuads>
__global__ void __launch_bounds__(kThreads, 2)
    transposed_kernel(DeviceJob job, BatchArrays b, Stages stages) {
  const Group group = this_group<kQuads>();
  for (std::uint32_t segment = group.rank; segment < b.segments; segment += group.all) {
    const Quad v = load_quad<kQuads>(job.state, all_factors_of(job.state, b.segment_slot[segment]),
                                     group.lane % kLanesOfEdge<kQuads>);
    const auto gradient =
        gradient_of_segment<kQuads, false>(job.state, b, stages.sums, group, segment, v);
    const GradientPlace out = place_of(job.state, b, stages.gradients, segment);
    if (group.lane < kQuads && has_factors<kQuads>(job.state, group.lane))
      gradient.factors.store(out.factors + 4 * group.lane);
    if (group.lane == 0) *out.linear = gradient.linear;
  }
}
__global__ void __launch_bounds__(kThreads, 2)
    transposed_fields_kernel(DeviceJob job, BatchArrays b, Stages stages) {
  const DeviceState& state = job.state;
  for_cells(b.segments, state.quads_of_fields(), [&](std::uint32_t segment, std::uint32_t at) {
    const GradientPlace out = place_of(state, b, stages.gradients, segment);
    if (at == 0) *out.linear = linear_gradient_of_segment(state, b, stages.sums, segment);
    if (at >= state.quads_of_fields()) return;
    const Quad w = Quad::load(all_factors_of(state, b.segment_slot[segment]) + 4 * at);
    gradient_of_cell_of_segment(state, b, stages.sums, segment, at, w).store(out.factors + 4 * at);
  });
}

// A thread has four factors of a slot; that of the first has the linear weight, too.
__global__ void __launch_bounds__(kThreads, 2)
    update_stage_kernel(DeviceJob job, BatchArrays b, float* gradients) {
  const DeviceState& state = job.state;
  const std::uint32_t quads = state.fields > 0 ? state.quads_of_fields() : state.width / 4;
  const std::uint32_t each = quads > 0 ? quads : 1;
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
       i < std::size_t{b.segments} * each; i += std::size_t{gridDim.x} * kThreads) {
    const auto segment = static_cast<std::uint32_t>(i / each);
    const auto quad = static_cast<std::uint32_t>(i % each);
    const std::uint32_t slot = b.segment_slot[segment];
    const auto entries =
        static_cast<float>(b.segment_begin[segment + 1] - b.segment_begin[segment]);
    const GradientPlace gradient = place_of(state, b, gradients, segment);
    if (quad == 0) {
      One linear[kMostPlanes];
      load_linear(linear, linear_of(state, slot), state.planes);
      step_linear(job.optimizer, linear, linear_of(state, slot), *gradient.linear, job.linear,
                  entries);
    }
    if (quad >= quads) continue;
    const Quad g = Quad::load(gradient.factors + 4 * quad);
    if (state.fields > 0 && !job.complete && !(total(g * g) > 0)) continue;
    float* const at = all_factors_of(state, slot) + 4 * quad;
    Quad s[kMostPlanes];
    s[0] = Quad::load(at);
    load_others(s, at, state.width, state.planes);
    step(job.optimizer, s, g, job.factors, entries);
    store(s, at, state.width, state.planes);
  }
}

LaunchShape shape_of(std::size_t threads) {
  return {.grid = blocks_for(threads, kThreads), .block = kThreads};
}

void transpose_fields(const DeviceJob& job, const BatchArrays& batch, const Stages& stages,
                      StreamRef stream) {
  const std::size_t threads =
      (job.state.quads_of_fields() + kLanesOfWarp - 1) / kLanesOfWarp * kLanesOfWarp;
  if (batch.pieces > 0) {
    launch(pieces_of_field_product_kernel, shape_of(batch.pieces * threads), stream, job, batch,
           stages.sums);
  }
  launch(transposed_fields_kernel, shape_of(batch.segments * threads), stream, job, batch, stages);
}

}  // namespace

void train_in_stages(const DeviceJob& job, const BatchArrays& batch, const Stages& stages,
                     double* loss, StreamRef stream) {
  const DeviceSums& sums = stages.sums;
  if (job.state.fields > 0) {
    const LaunchShape shape{.grid = blocks_for(batch.rows, 1),
                            .block = kThreads,
                            .shared_bytes = sizeof(float) * FieldTile::floats(job.state)};
    launch(product_of_fields_kernel, shape, stream, job, batch, sums);
    launch(loss_kernel, shape_of(batch.rows), stream, job, batch, sums);
    transpose_fields(job, batch, stages, stream);
  } else {
    for_quads(job.state, [&](auto quads) {
      launch(product_kernel<quads()>,
             shape_of(std::size_t{batch.rows} * kLanesOfWarp / kRowsOfWarp + 1), stream, job, batch,
             sums);
      launch(loss_kernel, shape_of(batch.rows), stream, job, batch, sums);
      if (batch.pieces > 0) {
        launch(pieces_of_product_kernel<quads()>,
               shape_of(std::size_t{batch.pieces} * kLanesOfGroup<quads()>), stream, job, batch,
               sums);
      }
      launch(transposed_kernel<quads()>,
             shape_of(std::size_t{batch.segments} * kLanesOfGroup<quads()>), stream, job, batch,
             stages);
    });
  }
  const std::size_t quads =
      job.state.fields > 0 ? job.state.quads_of_fields() : job.state.width / 4 + 1;
  launch(update_stage_kernel, shape_of(batch.segments * quads), stream, job, batch,
         stages.gradients);
  update_shared_on_device(job, batch.rows, sums, loss, stream);
}

}  // namespace motley::wide
