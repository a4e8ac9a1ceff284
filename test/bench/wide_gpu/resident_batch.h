// test/bench/wide_gpu/resident_batch.h: a model and a batch that lie on the device, to train on as
// often as one likes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "comm/device.h"
#include "test/bench/wide_gpu/three_stage.h"
#include "wide/device/kernels.h"
#include "wide/kernel/flow.h"
#include "wide/kernel/kernels.h"

namespace motley::wide {

// All samples in one batch, by sample and by feature (in windows alone, if there are any), and room
// for what kernels leave.
class ResidentBatch {
 public:
  ResidentBatch(const Model& model, const Samples& samples, const Windows& windows = {})
      : model_(model),
        maker_(samples, model.layout().slots, windows.rows > 0 ? Sides::kBySample : Sides::kBoth,
               windows),
        bytes_(made(samples.rows())),
        batch_(bytes_.size()),
        state_(model.layout().size() * sizeof(float)) {
    copy(batch_.view(bytes_.size(), DType::kInt8),
         ConstView(bytes_.data(), bytes_.size(), DType::kInt8), stream_);
    synchronize(stream_);
    arrays_ = maker_.arrays(batch_.view(1, DType::kInt8).data);
    const Job job = job_of(model.options(), model.layout(), samples, {.l2 = 2e-5f});
    job_ = {.state = state_at(floats(state_), model.layout()),
            .loss = job.loss,
            .optimizer = job.optimizer,
            .linear = job.linear,
            .factors = job.factors,
            .shared = job.shared,
            .complete = job.complete};
    const std::size_t rows = samples.rows(), gradient = model.layout().width + 4;
    stages_.sums = {.sums = take(sum_floats(job_.state) * rows),
                    .slopes = take(2 * rows),
                    .losses = reinterpret_cast<double*>(take(2 * rows)),
                    .partial = take(arrays_.pieces * gradient),
                    .scores = take(rows)};
    stages_.gradients = take(arrays_.segments * gradient);
    loss_ = reinterpret_cast<double*>(take(2));
    reset();
  }

  // The model is as it was.
  void reset() {
    copy(state_.view(model_.layout().size(), DType::kFloat32), model_.weights(), stream_);
    synchronize(stream_);
  }

  // Each puts one pass over the batch into stream().
  void flow(const FlowShape& shape) { flow_on_device(job_, arrays_, shape, loss_, stream_); }
  void by_batch() {
    DeviceSums sums = stages_.sums;
    sums.scores = nullptr;
    forward_on_device(job_, arrays_, sums, stream_);
    update_on_device(job_, arrays_, sums, stream_);
    update_shared_on_device(job_, arrays_.rows, sums, loss_, stream_);
  }
  void in_stages() { train_in_stages(job_, arrays_, stages_, loss_, stream_); }

  StreamRef stream() const noexcept { return stream_; }
  const DeviceState& state() const noexcept { return job_.state; }
  const BatchArrays& arrays() const noexcept { return arrays_; }
  const DeviceJob& job() const noexcept { return job_; }

 private:
  std::vector<std::byte> made(std::size_t n) {
    std::vector<std::uint64_t> rows(n);
    std::iota(rows.begin(), rows.end(), std::uint64_t{0});
    std::vector<std::byte> bytes(maker_.make(rows));
    maker_.write(bytes.data());
    return bytes;
  }
  static float* floats(const DeviceBuffer& buffer) {
    return buffer.view(buffer.size_bytes() / sizeof(float), DType::kFloat32).as<float>().data();
  }
  float* take(std::size_t n) {
    return floats(buffers_.emplace_back(std::max<std::size_t>(n, 4) * sizeof(float)));
  }

  const Model& model_;
  BatchMaker maker_;
  std::vector<std::byte> bytes_;
  Stream stream_;
  DeviceBuffer batch_, state_;
  std::vector<DeviceBuffer> buffers_;
  BatchArrays arrays_;
  DeviceJob job_;
  Stages stages_;
  double* loss_ = nullptr;
};

}  // namespace motley::wide
