// comm/group/average_time.h: how long an average takes where no member waits for another, by how
// long those of late took: as long as the shortest of them. The others may have waited.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "comm/clock.h"

namespace motley {

class AverageTime {
 public:
  static constexpr std::size_t kKept = 8;

  void took(Duration time) noexcept {
    if (time <= Duration{}) return;
    times_[next_] = time;
    next_ = (next_ + 1) % kKept;
  }
  // Zero if none is known.
  Duration least() const noexcept {
    Duration least{};
    for (const Duration time : times_) {
      if (time > Duration{} && (least == Duration{} || time < least)) least = time;
    }
    return least;
  }

 private:
  std::array<Duration, kKept> times_{};
  std::size_t next_ = 0;
};

}  // namespace motley
