#include "wide/disk_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "comm/error.h"
#include "wide/defaults.h"
#include "wide/file/memory_limit.h"
#include "wide/kernel/flow.h"
#include "wide/train/settle.h"

namespace motley::wide {
namespace {

constexpr double kBeside = 4 << 20;  // files' pages, and what malloc keeps

// Bytes of coming parts that the system reads meanwhile, so that a disk has several things to do,
// but as few as stay in memory until they are needed.
std::uint64_t wanted(std::uint64_t memory_limit) {
  return std::min<std::uint64_t>(memory_limit / 8, 8 << 20);
}

TrainOptions settled_for_disk(TrainOptions options, const DiskRows& rows, bool validates) {
  if (options.positive_weight != 1 || options.negative_rate != 1 || options.size != 1 ||
      options.processor != Processor::kCpu) {
    throw Error(ErrorCode::kInvalid,
                "train from disk: one worker, on the CPU, takes all rows as they are. Leave "
                "positive_weight, negative_rate, workers and device at their defaults");
  }
  if (options.prior_factors > 0 || options.average > 0) {
    throw Error(ErrorCode::kInvalid,
                "train from disk: it has no prior of factors (--prior) and no average of states "
                "(--average). Leave them out, or train in memory");
  }
  options.prior_factors = 0;
  options.average = 0;
  return settled(std::move(options), rows.part(0), validates);
}

// The memory of what was learnt, for a part to come.
Dataset room_of(Samples samples) {
  Dataset room;
  room.row_begin = std::move(samples.row_begin);
  room.labels = std::move(samples.labels);
  room.weights = std::move(samples.weights);
  room.ids = std::move(samples.slots);
  if (!samples.uniform) room.values = std::move(samples.values);
  return room;
}

Model model_for(const DiskRows& rows, const TrainOptions& options, bool validates) {
  ModelOptions of_model = options.model;
  of_model.seed = options.seed;
  of_model.initial_accumulator = options.initial_accumulator;
  const std::vector<std::uint32_t> fields =
      has_fields(of_model.kind) ? rows.fields() : std::vector<std::uint32_t>{};
  const Layout layout = Layout::of(of_model, rows.dictionary().size(), fields.size());
  const double states = validates ? 2 : 1;  // the best is kept
  check_room("train from disk: the model and two parts of the rows",
             states * static_cast<double>(layout.size() * sizeof(float)) +
                 2 * static_cast<double>(rows.part_bytes()) + kBeside,
             rows.memory_limit(), "Use a smaller k, smaller parts (--disk_rows), or more memory");
  Model model(of_model, rows.dictionary(), fields);
  model.set_recipe(rows.recipe());
  if (model.options().loss == Loss::kSquared)
    model.weights()[Layout::kBias] =
        static_cast<float>(rows.label_sum() / static_cast<double>(rows.rows()));
  settle_ftrl(model.options(), update_options(options), model.layout(), model.weights().data());
  return model;
}

}  // namespace

DiskRun::DiskRun(DiskRows rows, std::optional<Dataset> validation, const TrainOptions& options)
    : rows_(std::move(rows)),
      options_(settled_for_disk(options, rows_, validation.has_value())),
      model_(model_for(rows_, options_, validation.has_value())),
      flow_(make_flow(model_.options(), model_.layout(), {.threads = options_.threads})) {
  if (validation) validation_ = model_.prepare(std::move(*validation));
  begin_epoch();
}
DiskRun::~DiskRun() = default;

void DiskRun::begin_epoch() {
  order_ = shuffled(rows_.parts(), options_.seed + static_cast<std::uint64_t>(epoch_));
  if (!options_.shuffles) std::sort(order_.begin(), order_.end());
  ++epoch_;
  next_part_ = 0;
  loss_ = 0;
  learnt_ = 0;
  read_ahead();
}

void DiskRun::read_ahead() {
  if (next_part_ == order_.size()) return;
  ahead_ = std::async(std::launch::async, [this, coming = std::span(order_).subspan(next_part_),
                                           room = std::move(spare_)]() mutable {
    const std::uint64_t most = wanted(rows_.memory_limit());
    std::uint64_t bytes = 0;
    for (std::size_t i = 1; i < coming.size() && bytes < most; ++i)
      bytes += rows_.want(coming[i], most - bytes);
    return model_.prepare_slots(rows_.part(coming[0], std::move(room)), rows_.distinct());
  });
}

bool DiskRun::next_step() {
  if (done_) return false;
  if (next_part_ == order_.size()) {
    end_epoch();
    if (done_) return false;
    begin_epoch();
  }
  Samples samples = ahead_.get();
  const std::uint64_t part = order_[next_part_++];
  read_ahead();
  const auto number = static_cast<int>(part) + epoch_ * static_cast<int>(rows_.parts());
  const std::vector<std::uint64_t> rows = order_of_epoch(samples.rows(), number, options_);
  loss_ += flow_->train(samples, rows, update_options(options_), model_.weights());
  learnt_ += rows.size();
  rows_trained_ += rows.size();
  spare_ = room_of(std::move(samples));
  if (!std::isfinite(loss_)) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("train: diverged in epoch {} after {} rows: the loss is {}. Lower the "
                            "learning rate, or use instance normalisation",
                            epoch_, rows_trained_, loss_));
  }
  return true;
}

std::optional<Evaluation> DiskRun::validate() const {
  if (!validation_) return std::nullopt;
  return evaluate(model_.scores(*validation_, options_.threads), validation_->labels,
                  {.loss = model_.options().loss, .weights = validation_->weights});
}

void DiskRun::end_epoch() {
  EpochReport report{.epoch = epoch_, .train_loss = running_loss(), .validation = validate()};
  reports_.push_back(report);
  if (best_.is_better(report) && report.validation)
    best_state_.assign(model_.weights().begin(), model_.weights().end());
  done_ = best_.ends(report, options_);
  if (done_ && best_.epoch() != epoch_ && report.validation)
    std::copy(best_state_.begin(), best_state_.end(), model_.weights().begin());
  if (options_.on_epoch) options_.on_epoch(report);
}

}  // namespace motley::wide
