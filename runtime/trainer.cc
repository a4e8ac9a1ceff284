#include "runtime/trainer.h"

#include <fmt/format.h>

#include <utility>

#include "comm/error.h"
#include "runtime/state_sync.h"
#include "runtime/trainer/round_files.h"
#include "runtime/trainer/worker_saves.h"

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
  files_ = std::make_unique<RoundFiles>(comm.rank(), options);
}

Trainer::~Trainer() = default;

std::int64_t Trainer::run(View parameters, const LocalStep& local_step) {
  State saved;
  saved.add({"parameters", {parameters.count}, parameters, StatePolicy::kAverage});
  if (synchronizer_.overlaps() && parameters.memory == Memory::kHost) in_pieces_ = parameters;
  return run({.begin = [&] { synchronizer_.begin(parameters); },
              .average = [&](std::int64_t step) { return synchronizer_.average(parameters, step); },
              .finish = [&] { return synchronizer_.finish(parameters); }},
             saved, local_step);
}

std::int64_t Trainer::run(const State& state, const LocalStep& local_step) {
  StateSync sync(comm_, synchronizer_, state);
  in_pieces_.reset();  // the average is of a copy
  return run({.begin = [&] { sync.begin(); },
              .average = [&](std::int64_t step) { return sync.average(step); },
              .finish = [&] { return sync.finish(); }},
             state, local_step);
}

// Goes on from what is saved. A model of the mean has the steps of the foremost in it, whoever
// takes it: so that nobody counts as stale.
void Trainer::begin(const Averaged& averaged, const State& saved) {
  State all = saved;
  all.append("", options_.state);
  saves_ = std::make_unique<WorkerSaves>(comm_, all, options_.autosave);
  resumed_ = saves_->load();
  if (resumed_) step_ = saves_->step();
  behind_ = saves_->behind();
  averaged.begin();
  comm_.barrier().wait();
  start_ = comm_.clock().now();
}

std::int64_t Trainer::run(const Averaged& averaged, const State& saved,
                          const LocalStep& local_step) {
  begin(averaged, saved);
  for (bool more = true; more;) {
    Round round{.rank = comm_.rank(), .start = since_start()};
    const std::int64_t before = step_;
    more = local_steps(local_step);
    if (step_ == before) break;
    round.step = step_;
    round.computed = since_start();
    begun_ = false;
    const SyncReport report = averaged.average(step_ + behind_);
    record(round, report);
    saves_->after_round(step_);
    if (report.alone && options_.when_alone == WhenAlone::kStop) break;
  }
  const Duration finished = since_start();
  record({.rank = comm_.rank(), .step = step_, .start = finished, .computed = finished},
         averaged.finish());
  saves_->save(step_);
  files_->flush();
  return step_;
}

bool Trainer::local_steps(const LocalStep& local_step) {
  for (std::int64_t i = 0; i < options_.sync_every; ++i) {
    const TimePoint start = comm_.clock().now();
    last_of_round_ = i + 1 == options_.sync_every;
    // What is averaged in pieces is announced as it begins.
    if (last_of_round_ && !in_pieces_) synchronizer_.announce(step_ + 1 + behind_);
    const bool more = local_step(step_);
    if (begun_ && !more) {
      throw Error(ErrorCode::kInvalid,
                  fmt::format("trainer: step {} told of complete parameters and then that there "
                              "was nothing to do. Return true from it.",
                              step_));
    }
    if (!more) return false;
    straggler_.lengthen(start);
    ++step_;
  }
  return true;
}

void Trainer::ready(std::size_t first, std::size_t count) {
  if (!in_pieces_ || !last_of_round_) return;
  if (!std::exchange(begun_, true)) {
    synchronizer_.begin_average(*in_pieces_, step_ + 1 + behind_);
  }
  synchronizer_.ready(first, count);
}

void Trainer::record(Round round, const SyncReport& report) {
  round.together = round.computed + report.waiting;
  round.end = since_start();
  round.group = report.group;
  const TimePoint before = comm_.clock().now();
  files_->add(round);
  if (hook_) hook_(round);
  start_ += comm_.clock().now() - before;
}

Duration Trainer::since_start() const { return comm_.clock().now() - start_; }

}  // namespace motley::runtime
