// wide/trainer.h: training of a model, step by step, so that workers can average between steps.
//
//   TrainingRun run(read_file("train.txt"), read_file("valid.txt"), {.epochs = 20});
//   while (run.next_step()) {}                       // one worker
//   while (run.next_step()) synchronizer->average(run.state(), run.step());   // several
//   run.model().save("train.model");
//
// Several workers: all read the same files and pass the same options but for `rank`. Each epoch's
// rows are shuffled alike on all and split into as many shares; each worker trains on its own, and
// all make the same number of steps, so that every step may end in a collective call. After each
// step the whole state is averaged, weights and AdaGrad's accumulators alike: then a feature that
// only one worker saw takes the mean of its moves, with the mean of its evidence. Moves are divided
// by p and evidence too, so a step of AdaGrad counts 1/p * sqrt(p) of one worker's: the learning
// rate is multiplied by sqrt(p) to make up for it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "comm/view.h"
#include "wide/auc.h"
#include "wide/dataset.h"
#include "wide/model.h"
#include "wide/samples.h"

namespace motley::wide {

class Flow;

struct EpochReport {
  int epoch = 0;                         // from 1
  double train_loss = 0;                 // mean over this worker's rows, each before its update
  std::optional<Evaluation> validation;  // where there is validation data
};

struct TrainOptions {
  ModelOptions model;
  int epochs = 20;             // passes over the data, at most
  float learning_rate = 0.1f;  // of AdaGrad, for one worker
  float l2 = 2e-5f;            // on linear weights, per entry that uses the weight
  float l2_factors = 5e-4f;    // on factors
  std::size_t batch_rows = 1;  // rows per update; 1 learns most per epoch
  std::size_t sync_rows = 0;   // rows of this worker per step; 0: its whole share of an epoch
  int patience = 3;            // epochs without a better validation loss before an early stop
  std::uint64_t seed = 1;      // of the shuffles and of the model's initial values
  int rank = 0;                // this worker, in [0, size)
  int size = 1;
  std::function<void(const EpochReport&)> on_epoch;  // after each epoch
};

// Throws kInvalid, naming option, value and range, if one is out of range.
void check(const TrainOptions& options);

class TrainingRun {
 public:
  // Features of `train` become the model's. With validation data, training stops early and the best
  // epoch's state is kept. Throws kInvalid for options out of range or a data set without rows.
  TrainingRun(Dataset train, std::optional<Dataset> validation, const TrainOptions& options);
  TrainingRun(TrainingRun&&) noexcept;
  ~TrainingRun();

  // Trains this worker on its next sync_rows rows (fewer, or none, at the end of an epoch). False,
  // and nothing done, once training is over. What depends on the averaged state (evaluation, early
  // stop) happens at the beginning of the call after an epoch's last step. Throws kInvalid when
  // the loss is no longer finite.
  bool next_step();

  // The state to average after each step. Fixed address and size.
  View state() noexcept { return model_.state(); }
  std::int64_t step() const noexcept { return step_; }  // steps made
  std::int64_t steps_per_epoch() const noexcept { return steps_per_epoch_; }
  int epoch() const noexcept { return epoch_; }                          // epochs begun
  std::uint64_t rows_trained() const noexcept { return rows_trained_; }  // by this worker
  std::uint64_t rows_planned() const noexcept;  // by this worker, without an early stop

  // Mean loss of this worker's rows in the current epoch so far, each before its update.
  double running_loss() const noexcept;

  Model& model() noexcept { return model_; }
  const Model& model() const noexcept { return model_; }
  const Samples& samples() const noexcept { return train_; }
  const std::vector<EpochReport>& reports() const noexcept { return reports_; }
  // The model as it is now on the validation data, if there is any.
  std::optional<Evaluation> validate() const;
  // The epoch whose state the model has, once training is over.
  int best_epoch() const noexcept { return best_epoch_; }

 private:
  void begin_epoch();
  void end_epoch();
  std::size_t share_begin(int rank) const noexcept;

  TrainOptions options_;
  Model model_;
  Samples train_;
  std::optional<Samples> validation_;
  std::unique_ptr<Flow> flow_;
  std::vector<std::uint64_t> order_;  // all rows, as shuffled for this epoch
  std::size_t next_row_ = 0;          // in order_
  std::int64_t steps_left_ = 0;       // of this epoch
  std::int64_t steps_per_epoch_ = 0;
  std::int64_t step_ = 0;
  int epoch_ = 0;
  bool done_ = false;
  double epoch_loss_ = 0;
  std::uint64_t rows_trained_ = 0;
  std::vector<EpochReport> reports_;
  std::vector<float> best_state_;
  double best_loss_ = 0;
  int best_epoch_ = 0;
};

}  // namespace motley::wide
