// comm/grouping.h: how the controller forms groups. The same on all ranks.
#pragma once

#include <cstdint>

#include "comm/weights.h"

namespace motley {

// Against groups that would never hear of each other.
enum class Guard : std::uint8_t {
  kBridge,  // partners come from elsewhere, if they are there or about to be; no slow one is
            // awaited
  kNone,    // first come, first served: for comparison
};

struct Grouping {
  int group_size = 2;  // P, ranks averaged at a time; fewer when fewer are left. 0: adapted
  // More than group_size: as many as are ready within `linger` of a step after the first
  // group_size, at most so many. Of use where P does not divide the ranks and all are alike.
  int largest_group = 0;
  double linger = 0.05;
  Guard guard = Guard::kBridge;
  Weighting weighting;
  friend bool operator==(const Grouping&, const Grouping&) = default;
};

}  // namespace motley
