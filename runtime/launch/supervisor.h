// Looks after the processes of a job: their output, their ends, the signals sent to us.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "comm/clock.h"
#include "runtime/launch.h"
#include "runtime/launch/controller_process.h"
#include "runtime/launch/guard.h"
#include "runtime/launch/job_policy.h"
#include "runtime/launch/line_buffer.h"
#include "runtime/launch/process.h"
#include "runtime/launch/sink.h"

namespace motley::runtime {

// While it lives, the signals that a job reacts to arrive at a descriptor and nowhere else, and a
// reader of our output that goes away is an error, not a signal.
class SignalQueue {
 public:
  SignalQueue();
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  int fd() const noexcept { return fd_.get(); }
  // The next signal; 0 if there is none.
  int take();

 private:
  sigset_t before_{};
  void (*pipe_before_)(int);
  Fd fd_;
};

class Supervisor {
 public:
  // `controllers`: none, one, or the first and its standby. All must outlive the supervisor.
  Supervisor(const LaunchOptions& options, SignalQueue& signals,
             std::deque<ControllerProcess>& controllers);

  // Starts the next rank.
  void start(SpawnOptions spawn);
  // Returns when all ranks have ended and their output is written: the exit code.
  int run();

 private:
  struct Stream {
    Fd fd;
    LineBuffer lines;
    Sink* sink;
  };
  struct Rank {
    explicit Rank(Process started) : process(std::move(started)) {}
    Process process;
    pid_t pid = process.pid();
    bool running = true;
    TimePoint drained{};  // when its streams are closed, once it has ended
    LastLines last;
    std::vector<Stream> streams;
  };

  bool is_finished() const;
  void wait();
  Duration time_to_wait(TimePoint now) const;
  void read_some(Stream& stream);
  void close(Stream& stream);
  void close_drained(TimePoint now);
  void take_signals();
  void signal_ranks(int signal);
  void reap();
  void reap_controllers();
  void ended(int rank, const ExitStatus& status);
  void report(int rank, const ExitStatus& status, TimePoint now);
  void keep_time(TimePoint now);
  void say(const std::string& text);

  const LaunchOptions& options_;
  SignalQueue& signals_;
  std::vector<ControllerProcess*> controllers_;  // that run
  Clock& clock_ = Clock::real();
  TimePoint started_ = clock_.now();
  JobPolicy policy_;
  std::deque<Sink> sinks_;  // for output and errors, or one for both if they go to one place
  Guard guard_{options_.size};
  std::deque<Rank> ranks_;  // a Stream refers to its Rank
};

}  // namespace motley::runtime
