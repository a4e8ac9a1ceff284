// comm/group/patience.h: how long to wait for an average before it is given up, by how long those
// before took. Durations in, a limit out.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "comm/clock.h"

namespace motley {

class Patience {
 public:
  static constexpr std::size_t kKept = 32;   // averages, of each size of groups
  static constexpr std::size_t kEnough = 8;  // of them say something
  static constexpr int kDeviations = 5;      // times the median deviation from the median

  explicit Patience(Duration floor) : floor_(floor) {}

  // An average of `members` took so long.
  void took(std::size_t members, Duration time);
  // The median of those of this size plus kDeviations times the median of their deviations from it,
  // but the floor at least; twice as long with each attempt before. Nothing where too few are
  // known.
  std::optional<Duration> limit(std::size_t members, std::uint32_t attempts_before) const;

 private:
  struct Past {
    std::vector<Duration> times;  // the latest kKept, in a ring
    std::size_t next = 0;
  };

  Duration floor_;
  std::map<std::size_t, Past> past_;  // by members
};

}  // namespace motley
