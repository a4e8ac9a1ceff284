#include "wide/device/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "comm/error.h"
#include "wide/device/batch_stream.h"
#include "wide/kernel/kernels.h"

namespace motley::wide {
namespace {

class DeviceFlow final : public Flow {
 public:
  DeviceFlow(const ModelOptions& options, const Layout& layout, const DeviceFlowOptions& flow)
      : options_(options),
        layout_(layout),
        flow_(flow),
        state_bytes_(checked_bytes(layout)),
        loss_bytes_(sizeof(double)) {
    DeviceJob job;
    job.state = device_state();
    flow_shape(job, 1);  // throws where a block has no room for a row, of either way of training
  }

  double train(const Samples& samples, std::span<const std::uint64_t> rows,
               const UpdateOptions& options, std::span<float> state) override {
    assert(state.size() == layout_.size());
    if (rows.empty()) return 0;
    upload(state);
    learnt_ = static_cast<std::uint64_t>(state[Layout::kUpdates]);
    const DeviceJob job = device_job(samples, options);
    double* const loss = loss_bytes_.view(1, DType::kFloat64).as<double>().data();
    const bool by_batch = options.batch_rows > 1;
    const std::size_t size = by_batch ? options.batch_rows : flow_.copied_rows;
    const FlowShape shape = shape_for(job, size);
    const Windows windows{.rows = !by_batch && shape.by_feature ? shape.step_rows : 0,
                          .hot = shape.hot};
    BatchMaker maker(samples, layout_.slots, by_batch ? Sides::kBoth : Sides::kBySample, windows);
    stream_.for_batches(maker, rows, size, [&](const BatchArrays& batch, std::size_t /*first*/) {
      by_batch ? train_batch(next_update(job), batch, loss) : train_rows(job, batch, loss);
    });
    double sum = 0;
    copy(std::span(&sum, 1), loss_bytes_.view(1, DType::kFloat64), stream_.work());
    copy(state, state_bytes_.view(state.size(), DType::kFloat32), stream_.work());
    stream_.finish();
    return sum;
  }

  void score(const Samples& samples, std::span<const float> state, std::span<float> out) override {
    assert(out.size() == samples.rows());
    upload(state);
    const DeviceJob job = device_job(samples, {});
    std::vector<std::uint64_t> rows(out.size());
    std::iota(rows.begin(), rows.end(), std::uint64_t{0});
    BatchMaker maker(samples, layout_.slots, Sides::kBySample);
    const auto score_batch = [&](const BatchArrays& batch, std::size_t first) {
      DeviceSums sums;
      sums.scores = room(scores_, batch.rows);
      forward_on_device(job, batch, sums, stream_.work(), flow_.blocks);
      copy(out.subspan(first, batch.rows), scores_->view(batch.rows, DType::kFloat32),
           stream_.work());
    };
    stream_.for_batches(maker, rows, flow_.copied_rows, score_batch);
    stream_.finish();
  }

 private:
  static std::size_t checked_bytes(const Layout& layout) {
    const std::size_t bytes = layout.size() * sizeof(float), free = device_memory().free;
    if (bytes <= free) return bytes;
    constexpr double kMiB = 1 << 20;
    throw Error(ErrorCode::kInvalid,
                fmt::format("train: the model has {:.0f} MiB, but the device has {:.0f} free. Use "
                            "a smaller k, or the CPU",
                            static_cast<double>(bytes) / kMiB, static_cast<double>(free) / kMiB));
  }

  void upload(std::span<const float> state) {
    const double none = 0;
    copy(state_bytes_.view(state.size(), DType::kFloat32), state, stream_.work());
    copy(loss_bytes_.view(1, DType::kFloat64), std::span(&none, 1), stream_.work());
    stream_.finish();
  }

  DeviceState device_state() const {
    float* const state = state_bytes_.view(layout_.size(), DType::kFloat32).as<float>().data();
    return state_at(state, layout_);
  }

  DeviceJob device_job(const Samples& samples, const UpdateOptions& options) const {
    const Job job = job_of(options_, layout_, samples, options);
    return {.state = device_state(),
            .loss = job.loss,
            .optimizer = job.optimizer,
            .linear = job.linear,
            .factors = job.factors,
            .shared = job.shared,
            .complete = job.complete};
  }

  // By batches: as it is in the next update.
  DeviceJob next_update(const DeviceJob& job) {
    DeviceJob next = job;
    const auto t = static_cast<float>(++learnt_);
    for (Rates* const rates : {&next.linear, &next.factors, &next.shared})
      *rates = rates_of_step(options_.optimizer, *rates, t);
    return next;
  }

  FlowShape shape_for(const DeviceJob& job, std::size_t rows) const {
    if (flow_.shape.tile_rows > 0) return flow_.shape;
    return flow_shape(job, static_cast<std::uint32_t>(rows), 0, flow_.by_feature);
  }

  void train_rows(const DeviceJob& job, const BatchArrays& batch, double* loss) {
    const FlowShape all = shape_for(job, batch.rows);
    if (flow_.shape.tile_rows > 0) return flow_on_device(job, batch, all, loss, stream_.work());
    // More and more blocks share the model.
    for (std::uint32_t first = 0; first < batch.rows;) {
      FlowShape shape = all;
      shape.blocks = blocks_after(shape, learnt_);
      const std::uint64_t doubled =
          std::max<std::uint64_t>(learnt_ / shape.tile_rows, 8) * shape.tile_rows;
      const std::uint32_t left = batch.rows - first;
      const auto rows = static_cast<std::uint32_t>(
          shape.blocks == all.blocks ? left : std::min<std::uint64_t>(left, doubled));
      flow_on_device(job, part_of(batch, first, rows), shape, loss, stream_.work());
      first += rows;
      learnt_ += rows;
    }
  }

  void train_batch(const DeviceJob& job, const BatchArrays& batch, double* loss) {
    DeviceSums sums;
    sums.sums = room(sums_, batch.rows * sum_floats(job.state));
    sums.slopes = room(slopes_, 2 * std::size_t{batch.rows});
    sums.losses = reinterpret_cast<double*>(room(losses_, 2 * std::size_t{batch.rows}));
    sums.pairs = room(pairs_, std::size_t{chunks_of(batch.rows)} * job.state.pairs);
    sums.partial = room(partial_, batch.pieces * (layout_.width + 4));
    forward_on_device(job, batch, sums, stream_.work(), flow_.blocks);
    update_on_device(job, batch, sums, stream_.work(), flow_.blocks);
    update_shared_on_device(job, batch.rows, sums, loss, stream_.work());
  }

  // Place for n floats; what was there before is lost if it was too small.
  float* room(std::optional<DeviceBuffer>& buffer, std::size_t n) {
    const std::size_t bytes = std::max<std::size_t>(n * sizeof(float), 16);
    if (!buffer || buffer->size_bytes() < bytes) {
      stream_.finish();
      buffer.reset();
      buffer.emplace(bytes + bytes / 4);  // the next batch may have somewhat more
    }
    return buffer->view(n, DType::kFloat32).as<float>().data();
  }

  ModelOptions options_;
  Layout layout_;
  DeviceFlowOptions flow_;
  DeviceBuffer state_bytes_;
  DeviceBuffer loss_bytes_;
  std::optional<DeviceBuffer> sums_, slopes_, losses_, pairs_, partial_, scores_;
  std::uint64_t learnt_ = 0;  // rows, or by batches these, that the state has learnt
  BatchStream stream_;
};

[[noreturn]] void refuse(const std::string& what, const std::string& instead) {
  throw Error(ErrorCode::kInvalid, "train on a device: " + what + ". " + instead);
}

}  // namespace

void check_device_model(const ModelOptions& options, const Layout& layout) {
  if (options.kind != ModelKind::kFfm && layout.block > kMostFactors) {
    refuse(fmt::format("{} has {} factors as stored, but can have {}", name(options.kind),
                       layout.block, kMostFactors),
           "Use a smaller k, or the CPU");
  }
}

std::unique_ptr<Flow> make_device_flow(const ModelOptions& options, const Layout& layout,
                                       const DeviceFlowOptions& flow) {
  check_device_model(options, layout);
  if (device_count() == 0) {
    throw Error(ErrorCode::kUnavailable,
                "train on a device: this process has no CUDA device. Use the CPU");
  }
  return std::make_unique<DeviceFlow>(options, layout, flow);
}

}  // namespace motley::wide
