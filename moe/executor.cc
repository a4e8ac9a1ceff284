#include "moe/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
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
  Impl(Clock& clock, int rank, LaneThreads threads) : clock_(clock), rank_(rank), lanes_(threads) {}
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

  void bind(OpKind kind, Body body) {
    bind_call(kind, [body = std::move(body)](const Op& op, int index) {
      body(op, index);
      return Request();
    });
  }
  void bind_call(OpKind kind, Call call) {
    calls_[static_cast<std::size_t>(kind)] = std::move(call);
  }

  Timeline run(const Program& program) {
    check_bound(program);
    Run run(program);
    run.timeline.rank = rank_;
    run.timeline.ops.resize(program.ops.size());
    run.start = run.timeline.begin = clock_.now();
    if (lanes_ != LaneThreads::kEach || is_chain(program)) {
      run_alone(run);
    } else {
      run_lanes(run);
    }
    return std::move(run.timeline);
  }

 private:
  struct Posted {
    int op;
    Request request;
  };
  struct Run {
    explicit Run(const Program& it) : program(&it), progress(it) {}

    const Program* program;
    Progress progress;
    Timeline timeline;
    std::exception_ptr error;
    TimePoint start{};
    int lanes = 0;                // whose threads look at it, but for the caller's
    std::deque<Posted> posted{};  // by the thread that runs alone, not yet waited for

    const Op& op(int index) const { return program->ops[static_cast<std::size_t>(index)]; }
    OpTime& time(int index) { return timeline.ops[static_cast<std::size_t>(index)]; }
  };

  void run_alone(Run& run) {
    for (const int op : serial_order(*run.program)) {
      for (const int before : run.op(op).after) await(run, before);
      if (talks(run.op(op).lane) && lanes_ == LaneThreads::kPosted) {
        run.posted.push_back({op, post(run, op)});
      } else {
        perform(run, op);
      }
    }
    while (!run.posted.empty()) await_first(run);
  }

  // Ends what was posted up to and with `op`, if it has not ended yet: lanes keep their order.
  void await(Run& run, int op) {
    const auto is_it = [&](const Posted& posted) { return posted.op == op; };
    while (std::ranges::any_of(run.posted, is_it)) await_first(run);
  }

  void await_first(Run& run) {
    run.posted.front().request.wait();
    run.time(run.posted.front().op).end = clock_.now() - run.start;
    run.posted.pop_front();
  }

  void run_lanes(Run& run) {
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
  }

  void check_bound(const Program& program) const {
    for (int op = 0; op < std::ssize(program.ops); ++op) {
      const OpKind kind = program.ops[static_cast<std::size_t>(op)].kind;
      if (calls_[static_cast<std::size_t>(kind)]) continue;
      throw Error(ErrorCode::kInvalid,
                  fmt::format("moe executor: operation {} is of kind {}, which is not bound. Call "
                              "bind() for each kind of \"{}\".",
                              op, name(kind), program.strategy));
    }
  }

  // Starts an operation. Without the mutex: nobody else touches what this changes.
  Request post(Run& run, int op) {
    run.time(op).start = clock_.now() - run.start;
    return calls_[static_cast<std::size_t>(run.op(op).kind)](run.op(op), op);
  }

  void perform(Run& run, int op) {
    post(run, op).wait();
    run.time(op).end = clock_.now() - run.start;
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
  LaneThreads lanes_;
  std::array<Call, kOpKinds> calls_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<std::optional<std::thread>, kLanes> threads_;  // the compute lane has none
  Run* current_ = nullptr;
  bool ending_ = false;
};

Executor::Executor(Clock& clock, int rank, LaneThreads threads)
    : impl_(std::make_unique<Impl>(clock, rank, threads)) {}
Executor::~Executor() = default;
void Executor::bind(OpKind kind, Body body) { impl_->bind(kind, std::move(body)); }
void Executor::bind_call(OpKind kind, Call call) { impl_->bind_call(kind, std::move(call)); }
Timeline Executor::run(const Program& program) { return impl_->run(program); }

}  // namespace motley::moe
