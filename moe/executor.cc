#include "moe/executor.h"

#include <fmt/format.h>

#include <array>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "comm/error.h"
#include "moe/program/progress.h"

namespace motley::moe {

class Executor::Impl {
 public:
  Impl(Clock& clock, int rank) : clock_(clock), rank_(rank) {}
  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    for (std::optional<std::thread>& thread : threads_) {
      if (thread) thread->join();
    }
  }

  void bind(OpKind kind, Body body) { bodies_[static_cast<std::size_t>(kind)] = std::move(body); }

  Timeline run(const Program& program) {
    check_bound(program);
    Run run{.program = &program, .progress = Progress(program), .timeline = {}, .error = {}};
    run.timeline.rank = rank_;
    run.timeline.ops.resize(program.ops.size());
    run.start = run.timeline.begin = clock_.now();
    if (is_chain(program)) {
      for (int op = 0; op < std::ssize(program.ops); ++op) perform(run, op);
      return std::move(run.timeline);
    }
    std::unique_lock lock(mutex_);
    for (int lane = 1; lane < kLanes; ++lane) {
      auto& thread = threads_[static_cast<std::size_t>(lane)];
      if (run.progress.has_work(static_cast<Lane>(lane)) && !thread) {
        thread.emplace([this, lane] { serve(static_cast<Lane>(lane)); });
      }
    }
    current_ = &run;
    changed_.notify_all();
    work(lock, run, Lane::kCompute);
    changed_.wait(lock, [&] { return run.lanes == 0 && (run.error || run.progress.done()); });
    current_ = nullptr;
    if (run.error) std::rethrow_exception(run.error);
    return std::move(run.timeline);
  }

 private:
  struct Run {
    const Program* program;
    Progress progress;
    Timeline timeline;
    std::exception_ptr error;
    TimePoint start{};
    int lanes = 0;  // whose threads look at it, but for the caller's
  };

  void check_bound(const Program& program) const {
    for (int op = 0; op < std::ssize(program.ops); ++op) {
      const OpKind kind = program.ops[static_cast<std::size_t>(op)].kind;
      if (bodies_[static_cast<std::size_t>(kind)]) continue;
      throw Error(ErrorCode::kInvalid,
                  fmt::format("moe executor: operation {} is of kind {}, which is not bound. Call "
                              "bind() for each kind of \"{}\".",
                              op, name(kind), program.strategy));
    }
  }

  // Without the mutex: nobody else touches what this changes.
  void perform(Run& run, int op) {
    const Op& it = run.program->ops[static_cast<std::size_t>(op)];
    OpTime& time = run.timeline.ops[static_cast<std::size_t>(op)];
    time.start = clock_.now() - run.start;
    bodies_[static_cast<std::size_t>(it.kind)](it, op);
    time.end = clock_.now() - run.start;
  }

  // Does what there is for `lane` until the run has no more for it, or has failed.
  void work(std::unique_lock<std::mutex>& lock, Run& run, Lane lane) {
    while (!run.error && run.progress.has_work(lane)) {
      const std::optional<int> op = run.progress.take(lane);
      if (!op) {
        changed_.wait(lock);
        continue;
      }
      lock.unlock();
      std::exception_ptr error;
      try {
        perform(run, *op);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (error && !run.error) run.error = error;
      if (!error) run.progress.end(*op);
      changed_.notify_all();
    }
  }

  void serve(Lane lane) {
    std::unique_lock lock(mutex_);
    while (!ending_) {
      if (current_ != nullptr && !current_->error && current_->progress.has_work(lane)) {
        Run& run = *current_;
        ++run.lanes;
        work(lock, run, lane);
        --run.lanes;
        changed_.notify_all();
      } else {
        changed_.wait(lock);
      }
    }
  }

  Clock& clock_;
  int rank_;
  std::array<Body, kOpKinds> bodies_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<std::optional<std::thread>, kLanes> threads_;  // the compute lane has none
  Run* current_ = nullptr;
  bool ending_ = false;
};

Executor::Executor(Clock& clock, int rank) : impl_(std::make_unique<Impl>(clock, rank)) {}
Executor::~Executor() = default;
void Executor::bind(OpKind kind, Body body) { impl_->bind(kind, std::move(body)); }
Timeline Executor::run(const Program& program) { return impl_->run(program); }

}  // namespace motley::moe
