#include "runtime/launch/job_policy.h"

#include <csignal>

namespace motley::runtime {

bool JobPolicy::ended(const ExitStatus& status, TimePoint now) {
  --running_;
  if (status.good()) {
    one_succeeded_ = true;
    return false;
  }
  // After a signal of ours, or while the others are being ended, a failure is what was to be
  // expected.
  const bool expected = ending();
  if (first_failure_ == 0) first_failure_ = status.shell_code();
  if (when_lost_ == WhenLost::kEndOthers || interrupted_ != 0) start_ending(now);
  return !expected;
}

int JobPolicy::got_signal(int signal) {
  if (signal == SIGUSR1 || signal == SIGUSR2) return signal;
  if (signal == SIGINT) {
    if (interrupts_++ > 0) return SIGKILL;
  }
  interrupted_ = signal;
  return signal;
}

void JobPolicy::lost_reader(TimePoint now) {
  if (first_failure_ == 0) first_failure_ = 128 + SIGPIPE;
  start_ending(now);
  timer_ = now;  // there is nobody to whom the ranks could explain themselves
}

int JobPolicy::take_due(TimePoint now) {
  if (!timer_ || now < *timer_) return 0;
  timer_ = now + grace_;
  if (terminated_) return SIGKILL;
  terminated_ = true;
  return SIGTERM;
}

std::optional<TimePoint> JobPolicy::next_timer() const {
  return running_ > 0 ? timer_ : std::nullopt;
}

int JobPolicy::exit_code() const noexcept {
  if (interrupts_ > 1) return 128 + SIGINT;
  if (when_lost_ == WhenLost::kGoOn && one_succeeded_ && interrupted_ == 0) return 0;
  return first_failure_;
}

void JobPolicy::start_ending(TimePoint now) {
  if (!timer_) timer_ = now + grace_;
}

}  // namespace motley::runtime
