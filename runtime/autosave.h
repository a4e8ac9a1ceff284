// runtime/autosave.h: checkpoints that a training loop makes by itself, every so many steps or
// seconds, and goes on from when it is started again, on any number of workers.
//
//   GradientTrainer trainer(comm, model.parameters(), optimizer,
//                           {.state = state, .autosave = {.folder = "run", .every_steps = 1000}});
//   if (trainer.resumed()) log(to_text(*trainer.resumed()));
//
// Of a loop of your own, whose workers make the same steps:
//
//   Autosave autosave(comm, state, {.folder = "run", .every = minutes(10)});
//   for (std::int64_t step = autosave.step(); step < steps; autosave.after_step(++step, vote)) …
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "comm/clock.h"
#include "comm/communicator.h"
#include "runtime/checkpoint.h"
#include "runtime/state.h"

namespace motley::runtime {

struct AutosaveOptions {
  std::string folder;            // that all workers see; empty: nothing is saved or loaded
  std::int64_t every_steps = 0;  // 0: steps do not count
  Duration every{};              // by worker 0's clock; 0: time does not count
  CheckpointOptions checkpoint;  // how many to keep, among others
  bool resume = true;            // go on from what the folder has, if it has any
  // Where to go on from. By default past damaged checkpoints, each of which is told of
  // (Loaded::passed_over).
  LoadOptions load{.fall_back = true};
};

class Autosave {
 public:
  // Loads what `state` lists, if there is something to go on from. Called by all workers; `comm`
  // and the memory that `state` lists must outlive it. Throws kInvalid for numbers below 0, and
  // what Checkpointer::load() throws.
  Autosave(Communicator& comm, const State& state, const AutosaveOptions& options);

  // What was loaded, if anything was.
  const std::optional<Loaded>& loaded() const noexcept { return loaded_; }
  std::int64_t step() const noexcept { return loaded_ ? loaded_->step : 0; }  // to begin with

  // Worker 0: it is time to save. Others: false.
  bool votes() const;
  // After each step, by all workers: goes on with a checkpoint that is being written, begins one if
  // that is due and no other is under way (else later). `vote`: what votes() said on any of them.
  //   cost    nothing where there is nothing to do; else as Checkpointer's save() and poll()
  //   errors  what these throw, once, on all workers; the state is as it was, and the next that is
  //           due is tried
  void after_step(std::int64_t step, bool vote);
  // Saves now, and returns once the checkpoint is complete: at the end. By all workers.
  void save(std::int64_t step);

 private:
  Communicator& comm_;
  State state_;
  AutosaveOptions options_;
  Checkpointer checkpoints_;
  std::optional<Loaded> loaded_;
  TimePoint begun_{};  // the last save, or all of it
  bool due_ = false;
};

}  // namespace motley::runtime
