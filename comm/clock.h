// comm/clock.h: the time, as a parameter, so that a simulator can replace it.
#pragma once

#include <chrono>

namespace motley {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

// `seconds(0.5)`: a duration from a number of seconds.
constexpr Duration seconds(double s) { return Duration(static_cast<Duration::rep>(s * 1e9)); }
constexpr double to_seconds(Duration d) { return static_cast<double>(d.count()) * 1e-9; }

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
  // Returns at `until`, not before. Real time sleeps; virtual time lets other ranks run.
  virtual void sleep_until(TimePoint until) = 0;

  // The machine's monotonic clock.
  static Clock& real();
};

}  // namespace motley
