// test/support/manual_clock.h: a clock that moves only when somebody sleeps or a test says so.
#pragma once

#include <algorithm>

#include "comm/clock.h"

namespace motley::test {

class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  void sleep_until(TimePoint until) override { now_ = std::max(now_, until); }
  void advance(Duration time) { now_ += time; }

 private:
  TimePoint now_{};
};

}  // namespace motley::test
