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
#include "wide/state_average.h"

namespace motley::wide {

class Flow;

enum class Processor : std::uint8_t { kCpu, kCuda };

struct EpochReport {
  int epoch = 0;                         // from 1
  double train_loss = 0;                 // mean over this worker's rows, each before its update
  std::optional<Evaluation> validation;  // where there is validation data
};

struct TrainOptions {
  ModelOptions model;
  // Passes over the data, at most. 0: 100 where validation data stops training early, else 20.
  int epochs = 0;
  // For one worker. Below 0: 0.1; by AdaGrad for an FM 0.3, for models without factors 0.25 (by
  // others 0.2). For squared loss a quarter of it (FM by AdaGrad: a third), by Adam a twentieth;
  // for squared hinge loss by SGD 0.02.
  float learning_rate = -1;
  // Of factors. Below 0: learning_rate; where that is below 0, too, for an FM by AdaGrad, 6 by the
  // number of features in a row (defaults.h), at most 0.6; a third of it for squared loss.
  float learning_rate_factors = -1;
  float l1 = 0;  // on linear weights, per entry that uses the weight (optimizer.h)
  float l2 = 2e-5f;
  float l1_factors = 0;  // on factors
  // Below 0: 0 where there is a prior; else 5e-4, for an FFM, whose features have many, 1e-4; 2e-2
  // for squared loss.
  float l2_factors = -1;
  // Precision of a Gaussian prior on factors, stepped against once an epoch (state_average.h), by
  // SGD and AdaGrad. Below 0: for an FM by AdaGrad, unless l2_factors are given, 2, for squared
  // loss 6; else 0.
  float prior_factors = -1;
  // What an epoch's states count in the average of states that is validated and becomes the model;
  // 0: the last state itself. Not by FTRL. Below 0: 0.3 for an FM by AdaGrad, else 0.
  float average = -1;
  // Where AdaGrad's sums of squares begin, in place of model.initial_accumulator. Below 0: 0.1, for
  // an FM 0.5, for models without factors 1.
  float initial_accumulator = -1;
  std::size_t batch_rows = 1;  // rows per update; 1 learns most per epoch
  // Several threads go through an epoch together. Row by row (batch_rows 1) their model is not the
  // same each time; by batches it is, with the bits of one thread.
  int threads = 1;
  // kCuda: the current device trains, batch_rows above 1 deterministically, row by row with its
  // blocks sharing the model; LR, SVM, FM with k up to 32 and FFM with k up to 4, by SGD, AdaGrad
  // or FTRL. The state goes there and back in every step. Scores are the CPU's.
  Processor processor = Processor::kCpu;
  std::size_t sync_rows = 0;  // rows of this worker per step; 0: its whole share of an epoch
  int patience = 3;           // epochs without a better validation loss before an early stop
  std::uint64_t seed = 1;     // of the shuffles and of the model's initial values
  bool shuffles = true;       // false: rows go in the order of the data set
  float positive_weight = 1;  // times the weight of rows with label 1; moves predictions, too
  // Rows with label 0 are kept with this chance, in (0, 1], in all epochs alike; scores are moved
  // by its logarithm, so that predictions stay probabilities of the data as it was.
  float negative_rate = 1;
  int rank = 0;  // this worker, in [0, size)
  int size = 1;
  std::function<void(const EpochReport&)> on_epoch;  // after each epoch
};

// Throws kInvalid, naming option, value and range, if one is out of range.
void check(const TrainOptions& options);

// Which epoch is the best so far, and when training ends.
class BestEpoch {
 public:
  // Whether no epoch before was better; then it is the best.
  bool is_better(const EpochReport& report) noexcept;
  // Whether it is the last one: of all, or patience is at its end.
  bool ends(const EpochReport& report, const TrainOptions& options) const noexcept;
  int epoch() const noexcept { return epoch_; }  // 0: there was none yet

 private:
  int epoch_ = 0;
  double loss_ = 0;
};

class TrainingRun {
 public:
  // Features of `train` become the model's. With validation data, training stops early and the best
  // epoch's state is kept. Throws kInvalid for options out of range, a data set without rows, or a
  // model that the processor does not train; kUnavailable where there is no such processor.
  TrainingRun(Dataset train, std::optional<Dataset> validation, const TrainOptions& options);
  // Goes on from `initial`, grown by what `train` has and it lacks; options.model is not looked at.
  TrainingRun(Dataset train, std::optional<Dataset> validation, const TrainOptions& options,
              const Model& initial);
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
  const Samples& samples() const noexcept { return train_; }  // in an order of their own
  const std::vector<EpochReport>& reports() const noexcept { return reports_; }
  // The model as it is now on the validation data, if there is any.
  std::optional<Evaluation> validate() const;
  const std::optional<Samples>& validation() const noexcept { return validation_; }
  // The epoch whose state the model has, once training is over.
  int best_epoch() const noexcept { return best_.epoch(); }

 private:
  struct Start;
  TrainingRun(Start start, std::optional<Dataset> validation);
  void begin_epoch();
  void end_epoch();
  void judge();
  void keep_average();
  void train_rows(std::size_t n);
  std::size_t rows_to_next_average() const noexcept;
  std::size_t share_begin(int rank) const noexcept;

  TrainOptions options_;
  Model model_;
  Samples train_;
  std::optional<Samples> validation_;
  std::unique_ptr<Flow> flow_;
  std::vector<std::uint64_t> order_;  // of rows of train_, for this epoch
  std::size_t next_row_ = 0;          // in order_
  std::int64_t steps_left_ = 0;       // of this epoch
  std::int64_t steps_per_epoch_ = 0;
  std::int64_t step_ = 0;
  int epoch_ = 0;
  bool done_ = false;
  double epoch_loss_ = 0;
  std::uint64_t rows_trained_ = 0;
  std::vector<EpochReport> reports_;
  std::optional<StateAverage> average_;
  std::size_t averages_per_epoch_ = 1;
  std::size_t next_average_ = 0;  // of this epoch
  std::vector<float> best_state_;
  BestEpoch best_;
};

// Trains on all but each of `folds` parts of the rows in turn, each stopped early by the part that
// is left out, and evaluates that part: [folds] results. Parts are drawn by options.seed. Throws
// kInvalid for folds outside [2, rows].
std::vector<Evaluation> cross_validate(const Dataset& data, int folds, const TrainOptions& options);

}  // namespace motley::wide
