#include "runtime/autosave.h"

#include <fmt/format.h>

#include "comm/error.h"

namespace motley::runtime {

Autosave::Autosave(Communicator& comm, const State& state, const AutosaveOptions& options)
    : comm_(comm),
      state_(state),
      options_(options),
      checkpoints_(options.folder, comm, options.checkpoint),
      begun_(comm.clock().now()) {
  if (options.every_steps < 0 || options.every < Duration{}) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("autosave: every {} steps or {} s. Use numbers from 0 upwards.",
                            options.every_steps, to_seconds(options.every)));
  }
  if (options.resume && !options.folder.empty()) loaded_ = checkpoints_.load(state_, options.load);
}

bool Autosave::votes() const {
  if (options_.folder.empty() || options_.every == Duration{} || comm_.rank() != 0) return false;
  return comm_.clock().now() - begun_ >= options_.every;
}

void Autosave::after_step(std::int64_t step, bool vote) {
  if (options_.folder.empty()) return;
  due_ = due_ || vote || (options_.every_steps > 0 && step % options_.every_steps == 0);
  if (!checkpoints_.poll() || !due_) return;
  due_ = false;
  begun_ = comm_.clock().now();
  checkpoints_.save(state_, step);
}

void Autosave::save(std::int64_t step) {
  if (options_.folder.empty()) return;
  due_ = false;
  begun_ = comm_.clock().now();
  checkpoints_.save(state_, step);
  checkpoints_.wait();
}

}  // namespace motley::runtime
