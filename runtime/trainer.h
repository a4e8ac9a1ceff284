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
// per round, for the timeline (metrics.h).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "comm/clock.h"
#include "comm/communicator.h"
#include "comm/view.h"
#include "runtime/straggler.h"
#include "runtime/synchronizer.h"

namespace motley::runtime {

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

  // `comm` and `synchronizer` must outlive the trainer. Throws kInvalid on a bad option.
  Trainer(Communicator& comm, Synchronizer& synchronizer, const TrainerOptions& options);

  void on_round(Hook hook) { hook_ = std::move(hook); }

  // Waits for all workers, so that they start together; runs rounds until local_step returns
  // false; then waits for all workers and averages over them (Synchronizer::finish), which is a
  // round of its own with no computing. Returns the number of local steps.
  //   parameters  [n] what is averaged: the model, as one buffer; every worker begins with the same
  std::int64_t run(View parameters, const LocalStep& local_step);

 private:
  Duration since_start() const;
  bool local_steps(const LocalStep& local_step);
  void record(Round round, const SyncReport& report);

  Communicator& comm_;
  Synchronizer& synchronizer_;
  TrainerOptions options_;
  Straggler straggler_;
  Hook hook_;
  TimePoint start_{};  // of run(), moved on by the time that hooks took
  std::int64_t step_ = 0;
};

}  // namespace motley::runtime
