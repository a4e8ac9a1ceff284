// comm/transport/core_hop.h: two ranks on one core part.
//
// Right after start the kernel may have two ranks on one core and leave them there for a fraction
// of a second, though another core has none: as each yields to the other, neither seems to be short
// of anything. Calls take 30 times as long meanwhile. So the one with the higher number moves to a
// core without ranks: it allows itself that core alone, and then all that it was allowed before.
// With more ranks than cores the same goes for three on one core and one on the other.
#pragma once

#include <algorithm>
#include <vector>

#include "comm/clock.h"

namespace motley {

class CoreHop {
 public:
  // A look found no rank of a lower number on this core.
  void apart() noexcept { looks_ = 0; }
  // A look found one. True if it has been there for many, and the last hop is long ago: then hop.
  bool due(const Clock& clock) noexcept {
    if (++looks_ < kLooks) return false;
    looks_ = 0;
    const TimePoint now = clock.now();
    if (now < next_) return false;
    next_ = now + pause_;
    pause_ = std::min(2 * pause_, kLongestPause);
    return true;
  }

 private:
  static constexpr int kLooks = 64;  // enough for each rank to have said where it is
  static constexpr Duration kLongestPause = seconds(5e-3);

  int looks_ = 0;
  TimePoint next_{};
  Duration pause_ = seconds(2.5e-3);
};

// Moves the calling thread to the first core that it may run on and that is not among `taken`.
// False if there is none. It may run where it could before, in any case.
bool hop_to_another_core(const std::vector<int>& taken) noexcept;

// The least of `ranks_on`, by core, among the cores that the calling thread may run on but `other`;
// more than any number of ranks if there is none.
int fewest_on_allowed_cores(const std::vector<int>& ranks_on, int other) noexcept;

}  // namespace motley
