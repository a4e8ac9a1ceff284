// runtime/gradient_trainer.h: training in step: each worker computes the gradients of its part of a
// global batch, and all make the same update.
//
//   State state, running;                                     // state.h
//   batches.list(state);                                      // sharding.h
//   model.list_running(running);
//   GradientTrainer trainer(comm, model.parameters(), optimizer,
//                           {.learning_rate = {.base = 0.1, .warmup_samples = 5000},
//                            .clip_norm = 5,
//                            .running = running,
//                            .state = state,
//                            .autosave = {.folder = "run", .every_steps = 1000}});
//   while (batches.epoch() < epochs) {
//     const GlobalBatches::Part part = batches.next();
//     trainer.step({.sizes = part.sizes, .batch = part.batch}, [&](const MicroBatch& micro) {
//       const Loss loss = model.loss(part.samples.subspan(micro.first, micro.size));  // their mean
//       model.backward(loss.gradient * micro.weight, micro.ready);
//       return loss.mean;
//     });
//   }
//   trainer.save();
//
// Started again, this goes on from the last checkpoint, on any number of workers.
//
// The same bits on any number of workers: with `micro_batches` (here and in GlobalBatchOptions) the
// global batch is cut alike whoever has the pieces, and gradients, losses and running values are
// added in the order of pieces, ((g0 + g1) + g2) + g3. One worker, two and four then make bitwise
// equal steps, in float too, if the machines compute alike and `running` lists all that a backward
// pass changes. BatchNorm has to take its statistics of the micro-batch (ModelOptions::statistics
// null). The price: with fewer workers than pieces the gradients are averaged once for each piece
// that a worker has; in 16 bits, in float32.
//
// With workers of unequal speed see trainer.h, which averages models instead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "runtime/autosave.h"
#include "runtime/bucket.h"
#include "runtime/learning_rate.h"
#include "runtime/loss_scale.h"
#include "runtime/optimizer.h"
#include "runtime/parameter.h"
#include "runtime/state.h"

namespace motley::runtime {

class Tally;  // runtime/step/tally.h

struct GradientTrainerOptions {
  LearningRateOptions learning_rate;
  double clip_norm = 0;  // of all gradients together (gradient.h); 0: they are not clipped
  // The 16-bit type in which gradients of float32 parameters are computed and averaged
  // (loss_scale.h); if not set, the parameters' own.
  std::optional<DType> precision;
  LossScaleOptions loss_scale;  // with a 16-bit type
  BucketOptions buckets;
  int micro_batches = 0;  // pieces of a global batch, as said above; 0: as each step says
  // What a backward pass changes beside gradients, of floating types, as running means and
  // variances. Each micro-batch begins with the values of the step's beginning; the step leaves the
  // mean, by samples, of what all have made of them.
  State running;
  // What else to save and load, as the position among samples. Parameters, optimizer, `running`,
  // loss scale and position of the schedule are saved without being listed.
  State state;
  AutosaveOptions autosave;
};

// This worker's part of a global batch.
struct StepWork {
  // Samples of each micro-batch: none, where it has no part. With `micro_batches` one for each
  // piece that this worker has, in order, some of which may be 0.
  std::span<const std::int64_t> sizes;
  std::int64_t batch = 0;  // samples of all workers together, at least 1
};

// What the backward pass of a micro-batch is to do: add `weight` times the gradient of its mean
// loss to GradientTrainer::gradients(), for the parameters as in values().
struct MicroBatch {
  int index = 0;
  std::size_t first = 0;  // of this worker's samples, those of [first, first + size)
  std::size_t size = 0;
  double weight = 1;  // its share of the samples, times the loss scale
  // To be called for the parameters whose gradients are complete, last parameters first
  // (Buckets::ready); null where others are to come. What it is not called for is taken as complete
  // when the pass returns.
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

  // The others, and what `options` list, must outlive it. Parameters are the same on all workers.
  // Called by all workers. Throws kInvalid for bad options; with a folder to go on from, what
  // Checkpointer::load() throws.
  GradientTrainer(Communicator& comm, Parameters& parameters, Optimizer& optimizer,
                  const GradientTrainerOptions& options);
  GradientTrainer(const GradientTrainer&) = delete;
  GradientTrainer& operator=(const GradientTrainer&) = delete;
  ~GradientTrainer();

  // What it goes on from; to be told (to_text()).
  const std::optional<Loaded>& resumed() const noexcept { return autosave_->loaded(); }

  // [n], of the precision asked for: what to compute with, and where gradients go.
  View values();
  View gradients();

  // One update. Called by all workers, with the same `batch`. Throws kInvalid for sizes that are
  // not positive or more than the batch; what comm's calls and `backward` throw. After these errors
  // the step has not been made. What is wrong with a checkpoint is thrown after it has, once
  // (Autosave::after_step()).
  StepReport step(const StepWork& work, const Backward& backward);
  // Saves now, if there is a folder, and returns once that is complete. Called by all workers.
  void save() { autosave_->save(steps_); }

  // Of all workers, in all steps; those of earlier runs, too.
  std::int64_t samples() const noexcept { return samples_; }
  std::int64_t steps() const noexcept { return steps_; }
  // Of the last step.
  const Buckets& buckets() const noexcept { return buckets_; }
  // Adds samples, steps and, with a 16-bit precision, the loss scale. Parameters and optimizer have
  // their own. After loading, refresh() brings values() up to date.
  void list(State& state);
  void refresh();

 private:
  bool in_order() const noexcept { return options_.micro_batches > 0; }
  View sums();
  void check(const StepWork& work) const;
  void run_micro_batches(const StepWork& work, const Backward& backward);
  void hand_over(std::size_t first, std::size_t count);
  void make_rest_ready();
  void update(StepReport& report);

  Communicator& comm_;
  Parameters& parameters_;
  Optimizer& optimizer_;
  GradientTrainerOptions options_;
  LearningRate schedule_;
  std::unique_ptr<MixedPrecision> mixed_;  // null: parameters are computed with as they are
  Buckets buckets_;                        // of sums()
  std::unique_ptr<Tally> tally_;
  std::unique_ptr<Autosave> autosave_;
  std::vector<bool> ready_;        // by shape, in this micro-batch
  std::vector<std::byte> before_;  // worker 0, in_order(): the sum over the pieces before
  bool adds_before_ = false;
  std::int64_t samples_ = 0;
  std::int64_t steps_ = 0;
};

}  // namespace motley::runtime
