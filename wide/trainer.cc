#include "wide/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "comm/error.h"
#include "wide/defaults.h"
#include "wide/device/engine.h"
#include "wide/kernel/flow.h"
#include "wide/option_error.h"
#include "wide/train/settle.h"

namespace motley::wide {
namespace {

void require(bool holds, const char* option, double value, const char* range) {
  if (holds) return;
  throw OptionError("train", option, fmt::format("is {}, but must be {}", value, range));
}

}  // namespace

void check(const TrainOptions& o) {
  check(o.model);
  require(o.epochs >= 0, "epochs", o.epochs, "at least 0");
  require(o.learning_rate != 0 && std::isfinite(o.learning_rate), "learning_rate",
          static_cast<double>(o.learning_rate), "above 0");
  require(o.l1 >= 0 && std::isfinite(o.l1), "l1", static_cast<double>(o.l1), "at least 0");
  require(o.l1_factors >= 0 && std::isfinite(o.l1_factors), "l1_factors",
          static_cast<double>(o.l1_factors), "at least 0");
  require(o.threads >= 1 && o.threads <= 1024, "threads", o.threads, "in [1, 1024]");
  require(o.l2 >= 0 && std::isfinite(o.l2), "l2", static_cast<double>(o.l2), "at least 0");
  require(std::isfinite(o.l2_factors), "l2_factors", static_cast<double>(o.l2_factors), "finite");
  require(std::isfinite(o.prior_factors), "prior_factors", o.prior_factors, "finite");
  require(o.prior_factors <= 0 || planes(o.model.optimizer) <= 2, "prior_factors", o.prior_factors,
          "0 for ftrl and adam");
  require(o.average <= 1, "average", o.average, "at most 1");
  require(o.average <= 0 || o.model.optimizer != Optimizer::kFtrl, "average", o.average,
          "0 for ftrl");
  require(std::isfinite(o.initial_accumulator) && o.initial_accumulator != 0, "initial_accumulator",
          o.initial_accumulator, "above 0");
  require(o.learning_rate_factors != 0 && std::isfinite(o.learning_rate_factors),
          "learning_rate_factors", o.learning_rate_factors, "above 0");
  require(o.batch_rows >= 1, "batch_rows", static_cast<double>(o.batch_rows), "at least 1");
  require(o.patience >= 1, "patience", o.patience, "at least 1");
  require(o.positive_weight > 0 && std::isfinite(o.positive_weight), "positive_weight",
          static_cast<double>(o.positive_weight), "above 0");
  require(o.negative_rate > 0 && o.negative_rate <= 1, "negative_rate",
          static_cast<double>(o.negative_rate), "in (0, 1]");
  require(o.size >= 1, "size", o.size, "at least 1");
  require(o.rank >= 0 && o.rank < o.size, "rank", o.rank, "in [0, size)");
}

namespace {

// Scores stay what they are, in data of which another share of negative rows is left.
void set_rate(Model& model, float negative_rate) {
  const float offset = std::log(negative_rate);
  if (offset == model.offset()) return;
  if (model.options().optimizer == Optimizer::kFtrl) {  // whose weights follow from what it keeps
    throw OptionError("train", "negative_rate",
                      fmt::format("is {}, but the initial model, by ftrl, had {}", negative_rate,
                                  std::exp(model.offset())));
  }
  model.weights()[Layout::kBias] += model.offset() - offset;
  model.set_offset(offset);
}

Model fresh_model(const Dataset& train, const TrainOptions& options) {
  ModelOptions model = options.model;
  model.seed = options.seed;
  model.initial_accumulator = options.initial_accumulator;
  Model fresh = Model::of(model, train);
  begin_at_mean(fresh.options(), train, fresh.weights().data());
  settle_ftrl(fresh.options(), update_options(options), fresh.layout(), fresh.weights().data());
  fresh.set_offset(std::log(options.negative_rate));
  return fresh;
}

std::unique_ptr<Flow> flow_for(const Model& model, const TrainOptions& o) {
  if (o.processor == Processor::kCuda) return make_device_flow(model.options(), model.layout());
  return make_flow(model.options(), model.layout(), {.threads = o.threads});
}

}  // namespace

// As many as cost little beside the training itself.
std::size_t averages_per_epoch(const Samples& train, const Layout& layout, const TrainOptions& o) {
  if (o.processor == Processor::kCuda) return 1;  // as the state would go there and back
  const std::size_t touched =
      train.slots.size() * (layout.factors_stride() + layout.linear_stride());
  return std::clamp<std::size_t>(touched / (20 * layout.size()), 1, 4);
}

// What a run begins with.
struct TrainingRun::Start {
  TrainOptions options;
  Dataset train;
  Model model;

  static Start afresh(Dataset data, TrainOptions options, bool validates) {
    Dataset train = chosen(std::move(data), options);
    options = settled(std::move(options), train, validates);
    Model model = fresh_model(train, options);
    return {std::move(options), std::move(train), std::move(model)};
  }
  static Start from(const Model& initial, Dataset data, TrainOptions options, bool validates) {
    options.model = initial.options();
    Dataset train = chosen(std::move(data), options);
    options = settled(std::move(options), train, validates);
    Model model = initial.grown(train);
    set_rate(model, options.negative_rate);
    return {std::move(options), std::move(train), std::move(model)};
  }
};

TrainingRun::TrainingRun(Dataset train, std::optional<Dataset> validation,
                         const TrainOptions& options)
    : TrainingRun(Start::afresh(std::move(train), options, validation.has_value()),
                  std::move(validation)) {}

TrainingRun::TrainingRun(Dataset train, std::optional<Dataset> validation,
                         const TrainOptions& options, const Model& initial)
    : TrainingRun(Start::from(initial, std::move(train), options, validation.has_value()),
                  std::move(validation)) {}

TrainingRun::TrainingRun(Start start, std::optional<Dataset> validation)
    : options_(std::move(start.options)),
      model_(std::move(start.model)),
      train_(model_.prepare(std::move(start.train))),
      flow_(flow_for(model_, options_)) {
  if (validation) validation_ = model_.prepare(std::move(*validation));
  const std::size_t n = train_.rows();
  const auto size = static_cast<std::size_t>(options_.size);
  const std::size_t largest_share = (n + size - 1) / size;
  if (options_.sync_rows == 0) options_.sync_rows = largest_share;
  steps_per_epoch_ =
      static_cast<std::int64_t>((largest_share + options_.sync_rows - 1) / options_.sync_rows);
  if (options_.average > 0) {
    averages_per_epoch_ = averages_per_epoch(train_, model_.layout(), options_);
    average_.emplace(1 - std::pow(1 - std::min(options_.average, 1 - 1e-6f),
                                  1 / static_cast<float>(averages_per_epoch_)));
  }
  if (options_.shuffles) train_.reorder(shuffled(n, options_.seed));
  begin_epoch();
}

TrainingRun::TrainingRun(TrainingRun&&) noexcept = default;
TrainingRun::~TrainingRun() = default;

// The first n mod size ranks have one row more, so shares differ by at most one.
std::size_t TrainingRun::share_begin(int rank) const noexcept {
  const std::size_t n = train_.rows();
  const auto size = static_cast<std::size_t>(options_.size);
  const auto r = static_cast<std::size_t>(rank);
  return n / size * r + std::min(r, n % size);
}

std::uint64_t TrainingRun::rows_planned() const noexcept {
  return static_cast<std::uint64_t>(options_.epochs) *
         (share_begin(options_.rank + 1) - share_begin(options_.rank));
}

std::optional<Evaluation> TrainingRun::validate() const {
  if (!validation_) return std::nullopt;
  return evaluate(model_.scores(*validation_, options_.threads), validation_->labels,
                  {.loss = model_.options().loss, .weights = validation_->weights});
}

double TrainingRun::running_loss() const noexcept {
  const std::size_t rows = next_row_ - share_begin(options_.rank);
  return rows > 0 ? epoch_loss_ / static_cast<double>(rows) : 0;
}

void TrainingRun::begin_epoch() {
  order_ = order_of_epoch(train_.rows(), epoch_, options_);
  ++epoch_;
  epoch_loss_ = 0;
  next_row_ = share_begin(options_.rank);
  next_average_ = 0;
  steps_left_ = steps_per_epoch_;
}

// Rows until the state is to be averaged, which happens at the end of as many parts of an epoch.
std::size_t TrainingRun::rows_to_next_average() const noexcept {
  const std::size_t begin = share_begin(options_.rank);
  const std::size_t end = share_begin(options_.rank + 1);
  if (!average_ || next_average_ + 1 >= averages_per_epoch_) return end - next_row_;
  const std::size_t batch = options_.batch_rows;
  const std::size_t part = (end - begin) * (next_average_ + 1) / averages_per_epoch_;
  const std::size_t at = begin + (part + batch - 1) / batch * batch;
  return at > next_row_ ? std::min(at, end) - next_row_ : 0;
}

// The last part of an epoch is averaged at its end, behind the prior.
void TrainingRun::keep_average() {
  if (!average_ || next_average_ + 1 >= averages_per_epoch_ || rows_to_next_average() > 0) return;
  average_->take(model_.weights());
  ++next_average_;
}

bool BestEpoch::is_better(const EpochReport& report) noexcept {
  if (report.validation) {
    if (epoch_ != 0 && !(report.validation->loss < loss_)) return false;
    loss_ = report.validation->loss;
  }
  epoch_ = report.epoch;
  return true;
}

bool BestEpoch::ends(const EpochReport& report, const TrainOptions& options) const noexcept {
  return report.epoch == options.epochs ||
         (report.validation && report.epoch - epoch_ >= options.patience);
}

void TrainingRun::end_epoch() {
  const UpdateOptions update = update_options(options_);
  step_prior(model_.options(), model_.layout(), update.learning_rate_factors,
             options_.prior_factors, model_.weights());
  if (!average_) return judge();
  average_->take(model_.weights());
  const std::vector<float> last(model_.weights().begin(), model_.weights().end());
  std::ranges::copy(average_->state(), model_.weights().begin());
  judge();
  if (!done_) std::ranges::copy(last, model_.weights().begin());
}

// Evaluates the model as it is; keeps or restores the best one.
void TrainingRun::judge() {
  const std::size_t share = share_begin(options_.rank + 1) - share_begin(options_.rank);
  EpochReport report{.epoch = epoch_,
                     .train_loss = share > 0 ? epoch_loss_ / static_cast<double>(share) : 0};
  report.validation = validate();
  reports_.push_back(report);
  if (best_.is_better(report) && report.validation)
    best_state_.assign(model_.weights().begin(), model_.weights().end());
  done_ = best_.ends(report, options_);
  if (done_ && best_.epoch() != epoch_ && report.validation) {
    std::copy(best_state_.begin(), best_state_.end(), model_.weights().begin());
  }
  if (options_.on_epoch) options_.on_epoch(report);
}

bool TrainingRun::next_step() {
  if (done_) return false;
  if (steps_left_ == 0) {
    end_epoch();
    if (done_) return false;
    begin_epoch();
  }
  if (options_.size > 1) keep_average();  // now that the caller has averaged it over workers
  const std::size_t end =
      next_row_ + std::min(options_.sync_rows, share_begin(options_.rank + 1) - next_row_);
  do {
    const std::size_t left = end - next_row_;
    const std::size_t n = options_.size > 1 ? left : std::min(left, rows_to_next_average());
    train_rows(n);
    if (options_.size == 1) keep_average();
  } while (next_row_ < end);
  ++step_;
  --steps_left_;
  return true;
}

void TrainingRun::train_rows(std::size_t n) {
  const double loss = flow_->train(train_, std::span(order_).subspan(next_row_, n),
                                   update_options(options_), model_.weights());
  if (!std::isfinite(loss)) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("train: diverged in epoch {} after {} rows: the loss is {}. Lower the "
                            "learning rate, or use instance normalisation",
                            epoch_, rows_trained_ + n, loss));
  }
  epoch_loss_ += loss;
  next_row_ += n;
  rows_trained_ += n;
}

std::vector<Evaluation> cross_validate(const Dataset& data, int folds,
                                       const TrainOptions& options) {
  require(folds >= 2 && static_cast<std::size_t>(folds) <= data.rows(), "folds", folds,
          "at least 2, and at most the rows");
  const std::vector<std::uint64_t> order = shuffled(data.rows(), options.seed);
  std::vector<Evaluation> results;
  for (int fold = 0; fold < folds; ++fold) {
    std::vector<std::uint64_t> inside;
    std::vector<std::uint64_t> outside;
    for (std::size_t i = 0; i < order.size(); ++i) {
      (i % static_cast<std::size_t>(folds) == static_cast<std::size_t>(fold) ? outside : inside)
          .push_back(order[i]);
    }
    TrainingRun run(rows_of(data, inside), rows_of(data, outside), options);
    while (run.next_step()) {
    }
    results.push_back(*run.validate());
  }
  return results;
}

}  // namespace motley::wide
