// test/support/hasty_clock.h: a clock that passes a millisecond at each look: nobody waits long.
#pragma once

#include <algorithm>

#include "comm/clock.h"

namespace motley::test {

class HastyClock final : public Clock {
 public:
  TimePoint now() const override { return now_ += std::chrono::milliseconds(1); }
  void sleep_until(TimePoint until) override { now_ = std::max(now_, until); }

 private:
  mutable TimePoint now_{};
};

}  // namespace motley::test
