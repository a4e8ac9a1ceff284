// runtime/gradient_trainer.h: training in step: each worker computes the gradients of its part of a
// global batch, and all make the same update.
//
//   GradientTrainer trainer(comm, model.parameters(), optimizer,
//                           {.learning_rate = {.base = 0.1, .warmup_samples = 5000}, .clip_norm =
//                           5});
//   while (batches.epoch() < epochs) {                          // sharding.h
//     const GlobalBatches::Part part = batches.next();
//     const std::vector<std::int64_t> sizes = {std::ssize(part.samples)};
//     const StepReport report = trainer.step(
//         {.sizes = sizes, .batch = part.batch}, [&](const MicroBatch& micro) {
//           const Loss loss = model.loss(part.samples);         // the mean over them
//           model.backward(loss.gradient * micro.weight, micro.ready);
//           return loss.mean;
//         });
//   }
//
// With workers of unequal speed see trainer.h, which averages models instead.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "runtime/bucket.h"
#include "runtime/learning_rate.h"
#include "runtime/loss_scale.h"
#include "runtime/optimizer.h"
#include "runtime/parameter.h"
#include "runtime/state.h"

namespace motley::runtime {

struct GradientTrainerOptions {
  LearningRateOptions learning_rate;
  double clip_norm = 0;  // of all gradients together (gradient.h); 0: they are not clipped
  // The 16-bit type in which gradients of float32 parameters are computed and averaged
  // (loss_scale.h); if not set, the parameters' own.
  std::optional<DType> precision;
  LossScaleOptions loss_scale;  // with a 16-bit type
  BucketOptions buckets;
};

// This worker's part of a global batch.
struct StepWork {
  std::span<const std::int64_t> sizes;  // samples of each micro-batch; none, where it has no part
  std::int64_t batch = 0;               // samples of all workers together, at least 1
};

// What the backward pass of a micro-batch is to do: add `weight` times the gradient of its mean
// loss to GradientTrainer::gradients(), for the parameters as in values().
struct MicroBatch {
  int index = 0;
  double weight = 1;  // its share of this worker's samples, times the loss scale
  // To be called for the parameters whose gradients are complete, last parameters first
  // (Buckets::ready); null before the last micro-batch. What it is not called for is taken as
  // complete when the pass returns.
  std::function<void(std::size_t first, std::size_t count)> ready;
};

struct StepReport {
  double loss = 0;           // mean over the global batch
  double gradient_norm = 0;  // before clipping; infinite or NaN where a gradient is
  double learning_rate = 0;
  bool applied = true;  // false: a gradient was not finite, and no worker made the update
};

class GradientTrainer {
 public:
  // Returns the mean loss over the micro-batch.
  using Backward = std::function<double(const MicroBatch&)>;

  // The others must outlive it. Parameters are the same on all workers. Throws kInvalid for bad
  // options.
  GradientTrainer(Communicator& comm, Parameters& parameters, Optimizer& optimizer,
                  const GradientTrainerOptions& options);

  // [n], of the precision asked for: what to compute with, and where gradients go.
  View values();
  View gradients();

  // One update. Called by all workers, with the same `batch`. Throws kInvalid for sizes that are
  // not positive or more than the batch; what comm's calls and `backward` throw. After an error the
  // step has not been made.
  StepReport step(const StepWork& work, const Backward& backward);

  // Of all workers, in all steps.
  std::int64_t samples() const noexcept { return samples_; }
  // Of the last step.
  const Buckets& buckets() const noexcept { return buckets_; }
  // Adds the samples and, with a 16-bit precision, the loss scale. Parameters and optimizer have
  // their own. After loading, refresh() brings values() up to date.
  void list(State& state);
  void refresh();

 private:
  void run_micro_batches(const StepWork& work, const Backward& backward, double& loss);
  void make_rest_ready();

  Communicator& comm_;
  Parameters& parameters_;
  Optimizer& optimizer_;
  GradientTrainerOptions options_;
  LearningRate schedule_;
  std::unique_ptr<MixedPrecision> mixed_;  // null: parameters are computed with as they are
  Buckets buckets_;
  std::vector<bool> ready_;  // by shape, in this step
  std::int64_t samples_ = 0;
};

}  // namespace motley::runtime
