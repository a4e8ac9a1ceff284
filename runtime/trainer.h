// runtime/trainer.h: the data-parallel training loop. Start here.
//
//   Communicator comm = Communicator::join(Options::from_environment());
//   auto synchronizer = make_synchronizer("partial_reduce", comm, {.group_size = 2});
//   Trainer trainer(comm, *synchronizer, {.slow = comm.options().slow});
//   trainer.run(model.parameters(), [&](std::int64_t) {
//     if (!data.next_batch()) return false;    // no more steps for this worker
//     model.train(data.batch());               // forward, backward, update
//     return true;
//   });
//
// Each round is: local steps, then one average with other workers. Where the time went is recorded
// per round, for the timeline (metrics.h). With a folder in TrainerOptions::autosave each worker
// saves what it has by itself, and a job that is started again goes on from there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/clock.h"
#include "comm/communicator.h"
#include "comm/view.h"
#include "runtime/autosave.h"
#include "runtime/checkpoint.h"
#include "runtime/state.h"
#include "runtime/straggler.h"
#include "runtime/synchronizer.h"

namespace motley::runtime {

class RoundFiles;   // runtime/trainer/round_files.h
class WorkerSaves;  // runtime/trainer/worker_saves.h

// What a worker does whose peers have all finished or died (SyncReport::alone).
enum class WhenAlone : std::uint8_t {
  kContinue,  // makes its own steps to the end
  kStop,      // makes no more: for workers of different speeds, so that the fast, at the end, need
              // not wait until the slowest has made as many steps
};

struct TrainerOptions {
  std::int64_t sync_every = 1;  // local steps per average, at least 1
  double slow = 1;              // this worker is so many times slower (straggler.h)
  Duration base_step{};         // least duration of a local step, reached by sleeping
  WhenAlone when_alone = WhenAlone::kContinue;
  // Files of this worker's rounds, as metrics.h says, each written if it is named.
  std::string round_log;   // JSON lines
  std::string trace;       // Chrome trace
  std::string prometheus;  // totals, written anew at most once a second, and at the end
  // Every so many steps or seconds of its own, and at the end, each worker saves all that it has
  // into a folder of its own in this one, without waiting for others. Who goes on has its own
  // position, and the mean of the models of all that had saved lately. More workers may go on, and
  // fewer unless that would lose what is each one's own (kSum, kKeepOwn).
  AutosaveOptions autosave;
  // What else to save and load, but not to average: as the position among samples.
  State state;
};

// One round of one worker: computing from `start` to `computed`, waiting to `together`, averaging
// to `end`, all since the start of run(). Hooks run after `end`, and their time is taken out of the
// next round's clock.
struct Round {
  int rank = 0;
  std::int64_t step = 0;  // local steps done, this round included
  Duration start{};
  Duration computed{};
  Duration together{};
  Duration end{};
  std::vector<int> group;
};

class Trainer {
 public:
  // Makes one local step, `step` counting from 0; false if there was nothing left to do.
  using LocalStep = std::function<bool(std::int64_t step)>;
  // Called after each round; see Round for how its time counts.
  using Hook = std::function<void(const Round& round)>;

  // `comm` and `synchronizer` must outlive the trainer. Throws kInvalid on a bad option,
  // kIo if a file cannot be created.
  Trainer(Communicator& comm, Synchronizer& synchronizer, const TrainerOptions& options);
  ~Trainer();

  void on_round(Hook hook) { hook_ = std::move(hook); }

  // Waits for all workers, so that they start together; runs rounds until local_step returns
  // false; then waits for all workers and averages over them (Synchronizer::finish), which is a
  // round of its own with no computing. Returns the number of local steps.
  //   parameters  [n] what is averaged: the model, as one buffer; every worker begins with the same
  std::int64_t run(View parameters, const LocalStep& local_step);
  // The same for all that a worker has, as state_sync.h says.
  std::int64_t run(const State& state, const LocalStep& local_step);

  // For local_step, where the method can average in pieces (Synchronizer::overlaps()): elements
  // [first, first + count) of the parameters will not change any more in this step, last parameters
  // first, as Model::backward() tells. They are averaged while the rest is still computed; what is
  // not told of is taken as complete when local_step returns, which it must with true.
  //   trainer.run(model.parameters().values(), [&](std::int64_t) {
  //     sgd.begin_update();
  //     model.backward(d_scores, [&](std::size_t first, std::size_t count) {
  //       sgd.update_part(values, gradients, first, count);
  //       trainer.ready(first, count);
  //     });
  //     return true;
  //   });
  // Does nothing with other methods, with a State, and in a step that no average follows.
  void ready(std::size_t first, std::size_t count);

  // What this worker goes on from, once run() has called local_step: the first `step` is
  // Loaded::step.
  const std::optional<Loaded>& resumed() const noexcept { return resumed_; }

 private:
  // What is averaged, as a whole: a buffer of parameters, or a state.
  struct Averaged {
    std::function<void()> begin;
    std::function<SyncReport(std::int64_t step)> average;
    std::function<SyncReport()> finish;
  };
  std::int64_t run(const Averaged& averaged, const State& saved, const LocalStep& local_step);
  void begin(const Averaged& averaged, const State& saved);
  Duration since_start() const;
  bool local_steps(const LocalStep& local_step);
  void record(Round round, const SyncReport& report);

  Communicator& comm_;
  Synchronizer& synchronizer_;
  TrainerOptions options_;
  Straggler straggler_;
  std::unique_ptr<RoundFiles> files_;
  std::unique_ptr<WorkerSaves> saves_;
  std::optional<Loaded> resumed_;
  Hook hook_;
  TimePoint start_{};  // of run(), moved on by the time that hooks took
  std::int64_t step_ = 0;
  std::int64_t behind_ = 0;        // the foremost worker, when this one went on
  std::optional<View> in_pieces_;  // the parameters, if these can be averaged so
  bool last_of_round_ = false;     // an average follows the step
  bool begun_ = false;             // it has begun
};

}  // namespace motley::runtime
