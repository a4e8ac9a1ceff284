#include "runtime/trainer.h"

#include <fmt/format.h>

#include "comm/error.h"

namespace motley::runtime {

Trainer::Trainer(Communicator& comm, Synchronizer& synchronizer, const TrainerOptions& options)
    : comm_(comm),
      synchronizer_(synchronizer),
      options_(options),
      straggler_(comm.clock(), options.slow, options.base_step) {
  if (options.sync_every < 1) {
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("trainer: sync_every is {}; it must be at least 1.", options.sync_every));
  }
  if (!(options.slow >= 1)) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("trainer: slow is {}; it must be at least 1.", options.slow));
  }
}

std::int64_t Trainer::run(View parameters, const LocalStep& local_step) {
  comm_.barrier().wait();
  start_ = comm_.clock().now();
  for (bool more = true; more;) {
    Round round{.rank = comm_.rank(), .start = since_start()};
    const std::int64_t before = step_;
    more = local_steps(local_step);
    if (step_ == before) break;
    round.step = step_;
    round.computed = since_start();
    const SyncReport report = synchronizer_.average(parameters, step_);
    record(round, report);
    if (report.alone && options_.when_alone == WhenAlone::kStop) break;
  }
  const Duration finished = since_start();
  record({.rank = comm_.rank(), .step = step_, .start = finished, .computed = finished},
         synchronizer_.finish(parameters));
  return step_;
}

bool Trainer::local_steps(const LocalStep& local_step) {
  for (std::int64_t i = 0; i < options_.sync_every; ++i) {
    const TimePoint start = comm_.clock().now();
    if (!local_step(step_)) return false;
    straggler_.lengthen(start);
    ++step_;
  }
  return true;
}

void Trainer::record(Round round, const SyncReport& report) {
  round.together = round.computed + report.waiting;
  round.end = since_start();
  round.group = report.group;
  if (!hook_) return;
  const TimePoint before = comm_.clock().now();
  hook_(round);
  start_ += comm_.clock().now() - before;
}

Duration Trainer::since_start() const { return comm_.clock().now() - start_; }

}  // namespace motley::runtime
