// runtime/trainer/worker_saves.h: checkpoints of workers that are not in step. Each saves all that
// it has by itself, when it is time for it, and waits for nobody: worker 3 into "FOLDER/worker-3".
//
// Who goes on has its own position and what else is its own, bit for bit, and the mean of the
// models of those who saved lately: one that had died, or finished, long before the others were
// killed has an old one. Lately is within three of its own times from one save to the next.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "comm/clock.h"
#include "comm/communicator.h"
#include "runtime/autosave.h"
#include "runtime/checkpoint.h"
#include "runtime/state.h"

namespace motley::runtime {

class WorkerSaves {
 public:
  // Touches no file. `state` and what it lists must outlive this. Throws kInvalid for numbers below
  // 0 and for items that are called as this one's own, "trainer.…".
  WorkerSaves(Communicator& comm, const State& state, const AutosaveOptions& options);

  // By all workers, before their first step. What of this worker was loaded; nullopt where it, or
  // all, begin anew.
  //   errors  what Checkpointer::load() throws; kInvalid, on the others, naming the worker that
  //           threw; kInvalid where fewer workers go on than saved, if that would lose what was
  //           each one's own (kSum, kKeepOwn)
  std::optional<Loaded> load();
  std::int64_t step() const noexcept { return step_; }  // of this worker, to begin with
  // How many more steps than this the foremost worker has made.
  std::int64_t behind() const noexcept { return behind_; }

  // After each round: saves if that is due and no save is under way. Throws the error of a save
  // that failed, once.
  void after_round(std::int64_t step);
  // Saves now, and returns once the checkpoint is complete.
  void save(std::int64_t step);

 private:
  void begin_save(std::int64_t step);
  void check_all_there() const;
  void share(const std::vector<int>& lately);

  Communicator& comm_;
  AutosaveOptions options_;
  State shared_;  // the items of `state` that are
  State all_;
  bool has_own_ = false;
  Checkpointer checkpoints_;
  std::int64_t step_ = 0;
  std::int64_t behind_ = 0;
  double saved_ = 0;     // seconds since 1970; 0: never
  double interval_ = 0;  // from the save before that, or the beginning
  TimePoint begun_{};    // the last save, or all of it
};

}  // namespace motley::runtime
