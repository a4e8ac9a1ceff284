#include "wide/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "comm/error.h"
#include "wide/kernel/flow.h"

namespace motley::wide {
namespace {

void require(bool holds, const char* option, double value, const char* range) {
  if (holds) return;
  throw Error(ErrorCode::kInvalid,
              fmt::format("train: {} is {}, but must be {}", option, value, range));
}

}  // namespace

void check(const TrainOptions& o) {
  check(o.model);
  require(o.epochs >= 1, "epochs", o.epochs, "at least 1");
  require(o.learning_rate > 0 && std::isfinite(o.learning_rate), "learning_rate",
          static_cast<double>(o.learning_rate), "above 0");
  require(o.l2 >= 0 && std::isfinite(o.l2), "l2", static_cast<double>(o.l2), "at least 0");
  require(o.l2_factors >= 0 && std::isfinite(o.l2_factors), "l2_factors",
          static_cast<double>(o.l2_factors), "at least 0");
  require(o.batch_rows >= 1, "batch_rows", static_cast<double>(o.batch_rows), "at least 1");
  require(o.patience >= 1, "patience", o.patience, "at least 1");
  require(o.size >= 1, "size", o.size, "at least 1");
  require(o.rank >= 0 && o.rank < o.size, "rank", o.rank, "in [0, size)");
}

namespace {

Model fresh_model(const Dataset& train, const TrainOptions& options) {
  check(options);
  if (train.rows() == 0) throw Error(ErrorCode::kInvalid, "train: the data set has no rows");
  ModelOptions model = options.model;
  model.seed = options.seed;
  return Model(model, Dictionary::by_frequency(train));
}

}  // namespace

TrainingRun::TrainingRun(Dataset train, std::optional<Dataset> validation,
                         const TrainOptions& options)
    : options_(options),
      model_(fresh_model(train, options)),
      train_(model_.prepare(std::move(train))),
      flow_(make_flow(model_.options(), model_.layout())),
      order_(train_.rows()) {
  if (validation) validation_ = model_.prepare(std::move(*validation));
  const std::size_t n = train_.rows();
  const auto size = static_cast<std::size_t>(options_.size);
  const std::size_t largest_share = (n + size - 1) / size;
  if (options_.sync_rows == 0) options_.sync_rows = largest_share;
  steps_per_epoch_ =
      static_cast<std::int64_t>((largest_share + options_.sync_rows - 1) / options_.sync_rows);
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
  return evaluate(model_.scores(*validation_), validation_->labels);
}

double TrainingRun::running_loss() const noexcept {
  const std::size_t rows = next_row_ - share_begin(options_.rank);
  return rows > 0 ? epoch_loss_ / static_cast<double>(rows) : 0;
}

void TrainingRun::begin_epoch() {
  // From the identity each time, so that an epoch's order depends on seed and epoch alone. Drawn
  // without <random>'s distributions, whose results differ between standard libraries.
  std::iota(order_.begin(), order_.end(), std::uint64_t{0});
  std::mt19937_64 random(options_.seed * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(epoch_));
  for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random() % i]);
  ++epoch_;
  epoch_loss_ = 0;
  next_row_ = share_begin(options_.rank);
  steps_left_ = steps_per_epoch_;
}

void TrainingRun::end_epoch() {
  const std::size_t share = share_begin(options_.rank + 1) - share_begin(options_.rank);
  EpochReport report{.epoch = epoch_,
                     .train_loss = share > 0 ? epoch_loss_ / static_cast<double>(share) : 0};
  report.validation = validate();
  if (report.validation) {
    const double loss = report.validation->log_loss;
    if (best_epoch_ == 0 || loss < best_loss_) {
      best_loss_ = loss;
      best_epoch_ = epoch_;
      best_state_.assign(model_.weights().begin(), model_.weights().end());
    }
  } else {
    best_epoch_ = epoch_;
  }
  reports_.push_back(report);
  done_ = epoch_ == options_.epochs || (validation_ && epoch_ - best_epoch_ >= options_.patience);
  if (done_ && best_epoch_ != epoch_) {
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
  const std::size_t end = share_begin(options_.rank + 1);
  const std::size_t n = std::min(options_.sync_rows, end - next_row_);
  const float workers = static_cast<float>(options_.size);
  const UpdateOptions update{.learning_rate = options_.learning_rate * std::sqrt(workers),
                             .l2 = options_.l2,
                             .l2_factors = options_.l2_factors,
                             .batch_rows = options_.batch_rows};
  const double loss =
      flow_->train(train_, std::span(order_).subspan(next_row_, n), update, model_.weights());
  if (!std::isfinite(loss)) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("train: diverged in epoch {} after {} rows: the loss is {}. Lower the "
                            "learning rate, or use instance normalisation",
                            epoch_, rows_trained_ + n, loss));
  }
  epoch_loss_ += loss;
  next_row_ += n;
  rows_trained_ += n;
  ++step_;
  --steps_left_;
  return true;
}

}  // namespace motley::wide
