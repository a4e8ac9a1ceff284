// When the ranks of a job are to be signalled and with what code it ends, as a state machine
// without I/O: deaths, signals and the time in, signals for the ranks out.
#pragma once

#include <optional>

#include "comm/clock.h"
#include "runtime/launch.h"
#include "runtime/launch/exit_status.h"

namespace motley::runtime {

class JobPolicy {
 public:
  JobPolicy(int size, WhenLost when_lost, Duration grace)
      : running_(size), when_lost_(when_lost), grace_(grace) {}

  // A rank has ended. True if it is one to be reported in full: the first that failed, or, where
  // the others go on, any that failed.
  bool ended(const ExitStatus& status, TimePoint now);
  // We got `signal`: what the ranks are to get.
  int got_signal(int signal);
  // Nobody reads our output any more: the ranks are to end, as if one had failed.
  void lost_reader(TimePoint now);

  // The signal that the ranks still running are due; 0 before next_timer().
  int take_due(TimePoint now);
  std::optional<TimePoint> next_timer() const;

  int running() const noexcept { return running_; }
  // No rank is to go on: one has failed, or a signal has been passed on that ends programs.
  bool ending() const noexcept { return timer_.has_value() || interrupted_ != 0; }
  int exit_code() const noexcept;

 private:
  void start_ending(TimePoint now);

  int running_;
  WhenLost when_lost_;
  Duration grace_;
  bool one_succeeded_ = false;
  int first_failure_ = 0;    // its shell_code
  int interrupted_ = 0;      // the last signal passed on that ends programs
  int interrupts_ = 0;       // SIGINTs; the second kills
  bool terminated_ = false;  // SIGTERM was due and taken
  std::optional<TimePoint> timer_;
};

}  // namespace motley::runtime
