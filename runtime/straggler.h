// runtime/straggler.h: deliberate slowness, for experiments on machines that are alike.
//
// A step is lengthened to `base_step` by sleeping, so that it is not a few microseconds; a worker f
// times slower then sleeps (f - 1) times that again. Sleeping does not fight for cores, so many
// workers can be emulated on few.
#pragma once

#include <algorithm>

#include "comm/clock.h"

namespace motley::runtime {

class Straggler {
 public:
  // `slow`: at least 1, how many times slower this worker is.
  Straggler(Clock& clock, double slow, Duration base_step)
      : clock_(clock), slow_(slow), base_step_(base_step) {}

  // Sleeps after a step that began at `start` and has just ended.
  void lengthen(TimePoint start) {
    if (slow_ <= 1 && base_step_ == Duration::zero()) return;
    const Duration base = std::max(clock_.now() - start, base_step_);
    clock_.sleep_until(start + seconds(to_seconds(base) * slow_));
  }

 private:
  Clock& clock_;
  double slow_;
  Duration base_step_;
};

}  // namespace motley::runtime
