// wide/cli/progress.h: one line on the terminal that is written over: rows/s, loss, time left.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

#include "comm/clock.h"

namespace motley::wide {

class Progress {
 public:
  enum class Mode { kOff, kIfTerminal };  // kIfTerminal: only where standard error is one
  struct State {
    int epoch = 0;
    std::uint64_t rows = 0;  // trained by this worker, of `planned`
    std::uint64_t planned = 0;
    int workers = 1;  // all of them as fast as this one
    double loss = 0;  // mean of the epoch so far
  };

  Progress(Clock& clock, Mode mode)
      : clock_(clock),
        start_(clock.now()),
        on_(mode == Mode::kIfTerminal && isatty(STDERR_FILENO) == 1) {}

  // At most ten times a second.
  void show(const State& state) {
    if (!on_ || clock_.now() < next_) return;
    next_ = clock_.now() + seconds(0.1);
    const double rate = static_cast<double>(state.rows) / to_seconds(next_ - start_);
    fmt::print(stderr, "\repoch {}  {:.0f} rows/s  log loss {:.5f}  {:.0f} s left at most\x1b[K",
               state.epoch, rate * state.workers, state.loss,
               static_cast<double>(state.planned - state.rows) / rate);
    std::fflush(stderr);
    shown_ = true;
  }
  void clear() {
    if (shown_) fmt::print(stderr, "\r\x1b[K");
    shown_ = false;
  }

 private:
  Clock& clock_;
  TimePoint start_;
  TimePoint next_{};
  bool on_;
  bool shown_ = false;
};

}  // namespace motley::wide
