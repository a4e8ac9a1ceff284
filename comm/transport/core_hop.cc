#include "comm/transport/core_hop.h"

#include <sched.h>

#include <cstring>
#include <limits>

namespace motley {

bool hop_to_another_core(const std::vector<int>& taken) noexcept {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed)) continue;
    if (std::find(taken.begin(), taken.end(), core) != taken.end()) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) return false;
    if (sched_setaffinity(0, sizeof allowed, &allowed) == 0) return true;
    std::memset(&allowed, 0xff, sizeof allowed);  // those were taken away: whatever there is now
    return sched_setaffinity(0, sizeof allowed, &allowed) == 0;
  }
  return false;
}

int fewest_on_allowed_cores(const std::vector<int>& ranks_on, int other) noexcept {
  int least = std::numeric_limits<int>::max();
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return least;
  for (int core = 0; core < static_cast<int>(ranks_on.size()); ++core) {
    if (core != other && CPU_ISSET(core, &allowed))
      least = std::min(least, ranks_on[static_cast<std::size_t>(core)]);
  }
  return least;
}

}  // namespace motley
