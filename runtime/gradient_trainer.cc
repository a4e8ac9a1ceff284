#include "runtime/gradient_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "comm/convert.h"
#include "comm/error.h"
#include "runtime/gradient.h"
#include "runtime/numeric/types.h"
#include "runtime/sharding.h"
#include "runtime/step/tally.h"

namespace motley::runtime {
namespace {

std::unique_ptr<MixedPrecision> mixed_of(Parameters& parameters,
                                         const GradientTrainerOptions& options) {
  if (!options.precision) return nullptr;
  return std::make_unique<MixedPrecision>(parameters.values(), *options.precision,
                                          options.loss_scale);
}

BucketOptions buckets_of(const GradientTrainerOptions& options) {
  BucketOptions buckets = options.buckets;
  if (options.micro_batches > 0) buckets.deterministic = true;
  return buckets;
}

std::int64_t total(std::span<const std::int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
}

}  // namespace

GradientTrainer::GradientTrainer(Communicator& comm, Parameters& parameters, Optimizer& optimizer,
                                 const GradientTrainerOptions& options)
    : comm_(comm),
      parameters_(parameters),
      optimizer_(optimizer),
      options_(options),
      schedule_(options.learning_rate),
      mixed_(mixed_of(parameters, options)),
      buckets_(comm, sums(), parameters.shapes(), buckets_of(options)),
      tally_(std::make_unique<Tally>(options.running)),
      ready_(parameters.shapes().size()) {
  if (!(options.clip_norm >= 0 && std::isfinite(options.clip_norm))) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("GradientTrainer: clip_norm is {}. Use a number from "
                            "0 upwards.",
                            options.clip_norm));
  }
  check_micro_batches("GradientTrainer", options.micro_batches, comm.size());
  State all;
  parameters.list(all);
  all.append("", options.running);
  optimizer.list(all);
  list(all);
  all.append("", options.state);
  autosave_ = std::make_unique<Autosave>(comm, all, options.autosave);
  refresh();
}

GradientTrainer::~GradientTrainer() = default;

View GradientTrainer::values() { return mixed_ ? mixed_->values() : parameters_.values(); }
View GradientTrainer::gradients() { return mixed_ ? mixed_->gradients() : parameters_.gradients(); }
// What is added up over workers: 16-bit sums would round as often as there are workers.
View GradientTrainer::sums() { return in_order() ? parameters_.gradients() : gradients(); }

void GradientTrainer::check(const StepWork& work) const {
  const std::int64_t mine = total(work.sizes);
  const auto pieces = static_cast<std::size_t>(options_.micro_batches / comm_.size());
  if (in_order() && work.sizes.size() != pieces) {
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("GradientTrainer: {} micro-batches on a worker, but {} workers share {}. "
                    "Pass the sizes of GlobalBatches, with as many micro_batches.",
                    work.sizes.size(), comm_.size(), options_.micro_batches));
  }
  for (const std::int64_t size : work.sizes) {
    if (size >= (in_order() ? 0 : 1) && mine <= work.batch) continue;
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("GradientTrainer: a micro-batch of {} samples, {} in all, of a batch of "
                    "{}. Use positive sizes, at most the batch together.",
                    size, mine, work.batch));
  }
  if (work.batch < 1) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("GradientTrainer: a batch of {} samples. It has at least 1, on some "
                            "worker.",
                            work.batch));
  }
}

StepReport GradientTrainer::step(const StepWork& work, const Backward& backward) {
  check(work);
  StepReport report{.learning_rate = schedule_.at(samples_)};
  tally_->begin(in_order() ? static_cast<int>(work.sizes.size()) : 1);
  try {
    run_micro_batches(work, backward);
  } catch (...) {
    buckets_.cancel();
    tally_->restore();
    throw;
  }
  Request tallied =
      tally_->gather(comm_, autosave_->votes(), {.timeout = options_.buckets.timeout});
  buckets_.wait();
  tallied.wait();
  report.loss = tally_->finish();
  samples_ += work.batch;
  ++steps_;
  update(report);
  if (!report.applied) tally_->restore();  // what made the gradient no number made them none, too
  autosave_->after_step(steps_, tally_->any_vote());
  return report;
}

void GradientTrainer::update(StepReport& report) {
  const View all = parameters_.gradients();
  report.applied = !mixed_ || mixed_->unscale(all, sums());
  if (!report.applied) {
    report.gradient_norm = std::numeric_limits<double>::infinity();
    return;
  }
  const double most =
      options_.clip_norm > 0 ? options_.clip_norm : std::numeric_limits<double>::max();
  const Clipped clipped = clip_by_global_norm({&all, 1}, most);
  report.gradient_norm = clipped.norm;
  report.applied = clipped.finite;
  if (!report.applied) return;
  optimizer_.set_learning_rate(report.learning_rate);
  optimizer_.update(parameters_.values(), all);
  refresh();
}

// In order, each micro-batch is averaged by itself, and worker 0 adds the sum over those before to
// its own: the sum over workers then goes on in the order of pieces. Else the gradients of a worker
// add up first.
void GradientTrainer::run_micro_batches(const StepWork& work, const Backward& backward) {
  const auto batch = static_cast<double>(work.batch);
  const auto mine = static_cast<double>(total(work.sizes));
  const std::size_t count = std::max<std::size_t>(work.sizes.size(), 1);
  const double scale = mixed_ ? mixed_->loss_scale() : 1;
  std::size_t first = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t size = work.sizes.empty() ? 0 : work.sizes[i];
    adds_before_ = in_order() && i > 0 && comm_.rank() == 0;
    if (adds_before_) before_.assign(sums().bytes().begin(), sums().bytes().end());
    if (in_order() || i == 0) {
      std::ranges::fill(gradients().bytes(), std::byte{0});
      buckets_.begin(in_order() ? 1 : mine / batch);
    }
    const bool reduces = in_order() || i + 1 == count;
    ready_.assign(ready_.size(), false);
    if (size > 0) {
      const double part = static_cast<double>(size) / (in_order() ? batch : mine);
      MicroBatch micro{.index = static_cast<int>(i),
                       .first = first,
                       .size = static_cast<std::size_t>(size),
                       .weight = part * scale,
                       .ready = {}};
      if (reduces) {
        micro.ready = [this](std::size_t from, std::size_t n) { hand_over(from, n); };
      }
      const double loss = backward(micro);
      tally_->add(in_order() ? static_cast<int>(i) : 0, loss, static_cast<double>(size) / batch);
    }
    if (reduces) make_rest_ready();
    if (reduces && i + 1 < count) buckets_.wait();
    first += static_cast<std::size_t>(size);
  }
}

// Elements [first, first + count) of gradients() are complete.
void GradientTrainer::hand_over(std::size_t first, std::size_t count) {
  const View part = sums().slice(first, count);
  if (mixed_ && in_order()) convert(part, gradients().slice(first, count));
  if (adds_before_) {
    with_floating("GradientTrainer", part.dtype, [&]<class T>(T) {
      if constexpr (std::is_floating_point_v<T>) {
        const auto before = View(before_.data(), sums().count, part.dtype).as<T>();
        const auto sum = part.as<T>();
        for (std::size_t i = 0; i < count; ++i) sum[i] = before[first + i] + sum[i];
      }
    });
  }
  buckets_.ready(first, count);
  std::size_t at = 0;
  for (std::size_t shape = 0; shape < ready_.size(); ++shape) {
    if (at >= first && at < first + count) ready_[shape] = true;
    at += parameters_.shapes()[shape].count();
  }
}

void GradientTrainer::make_rest_ready() {
  std::size_t end = parameters_.count();
  for (std::size_t shape = ready_.size(); shape-- > 0;) {
    const std::size_t count = parameters_.shapes()[shape].count();
    end -= count;
    if (!ready_[shape] && count > 0) hand_over(end, count);
  }
}

void GradientTrainer::list(State& state) {
  state.add("samples", samples_, StatePolicy::kMaximum);
  state.add("steps", steps_, StatePolicy::kMaximum);
  if (mixed_) mixed_->list(state);
}

void GradientTrainer::refresh() {
  if (mixed_) mixed_->refresh();
}

}  // namespace motley::runtime
