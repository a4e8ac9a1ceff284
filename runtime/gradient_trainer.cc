#include "runtime/gradient_trainer.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "comm/error.h"
#include "runtime/gradient.h"

namespace motley::runtime {
namespace {

std::unique_ptr<MixedPrecision> mixed_of(Parameters& parameters,
                                         const GradientTrainerOptions& options) {
  if (!options.precision) return nullptr;
  return std::make_unique<MixedPrecision>(parameters.values(), *options.precision,
                                          options.loss_scale);
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
      buckets_(comm, gradients(), parameters.shapes(), options.buckets),
      ready_(parameters.shapes().size()) {
  if (options.clip_norm >= 0 && std::isfinite(options.clip_norm)) return;
  throw Error(ErrorCode::kInvalid,
              fmt::format("GradientTrainer: clip_norm is {}. Use a number from "
                          "0 upwards.",
                          options.clip_norm));
}

View GradientTrainer::values() { return mixed_ ? mixed_->values() : parameters_.values(); }
View GradientTrainer::gradients() { return mixed_ ? mixed_->gradients() : parameters_.gradients(); }

StepReport GradientTrainer::step(const StepWork& work, const Backward& backward) {
  const std::int64_t mine = std::accumulate(work.sizes.begin(), work.sizes.end(), std::int64_t{0});
  for (const std::int64_t size : work.sizes) {
    if (size > 0 && mine <= work.batch) continue;
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
  StepReport report{.learning_rate = schedule_.at(samples_)};
  buckets_.begin(static_cast<double>(mine) / static_cast<double>(work.batch));
  double loss = 0;
  try {
    run_micro_batches(work, backward, loss);
  } catch (...) {
    buckets_.cancel();
    throw;
  }
  loss /= static_cast<double>(work.batch);
  Request losses = comm_.all_reduce(std::span<double>(&loss, 1), ReduceOp::kSum,
                                    {.timeout = options_.buckets.timeout});
  buckets_.wait();
  losses.wait();
  report.loss = loss;
  samples_ += work.batch;
  report.applied = !mixed_ || mixed_->unscale(parameters_.gradients());
  if (!report.applied) {
    report.gradient_norm = std::numeric_limits<double>::infinity();
    return report;
  }
  const View all = parameters_.gradients();
  const double most =
      options_.clip_norm > 0 ? options_.clip_norm : std::numeric_limits<double>::max();
  const Clipped clipped = clip_by_global_norm({&all, 1}, most);
  report.gradient_norm = clipped.norm;
  report.applied = clipped.finite;
  if (!report.applied) return report;
  optimizer_.set_learning_rate(report.learning_rate);
  optimizer_.update(parameters_.values(), all);
  if (mixed_) mixed_->refresh();
  return report;
}

// Leaves in `loss` the sum over this worker's samples.
void GradientTrainer::run_micro_batches(const StepWork& work, const Backward& backward,
                                        double& loss) {
  const View sums = gradients();
  if (sums.count > 0) std::memset(sums.data, 0, sums.size_bytes());
  ready_.assign(ready_.size(), false);
  const auto mine =
      static_cast<double>(std::accumulate(work.sizes.begin(), work.sizes.end(), std::int64_t{0}));
  const double scale = mixed_ ? mixed_->loss_scale() : 1;
  for (std::size_t i = 0; i < work.sizes.size(); ++i) {
    const auto size = static_cast<double>(work.sizes[i]);
    MicroBatch micro{.index = static_cast<int>(i), .weight = size / mine * scale, .ready = {}};
    if (i + 1 == work.sizes.size()) {
      micro.ready = [this](std::size_t first, std::size_t count) {
        buckets_.ready(first, count);
        std::size_t at = 0;
        for (std::size_t shape = 0; shape < ready_.size(); ++shape) {
          if (at >= first && at < first + count) ready_[shape] = true;
          at += parameters_.shapes()[shape].count();
        }
      };
    }
    loss += backward(micro) * size;
  }
  make_rest_ready();
}

void GradientTrainer::make_rest_ready() {
  std::size_t end = parameters_.count();
  for (std::size_t shape = ready_.size(); shape-- > 0;) {
    const std::size_t count = parameters_.shapes()[shape].count();
    end -= count;
    if (!ready_[shape] && count > 0) buckets_.ready(end, count);
  }
}

void GradientTrainer::list(State& state) {
  state.add("samples", samples_, StatePolicy::kMaximum);
  if (mixed_) mixed_->list(state);
}

void GradientTrainer::refresh() {
  if (mixed_) mixed_->refresh();
}

}  // namespace motley::runtime
