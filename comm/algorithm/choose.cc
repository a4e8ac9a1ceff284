#include "comm/algorithm/choose.h"

#include "comm/algorithm/cost.h"
#include "comm/algorithm/schedule.h"

namespace motley {

int choose(const Choice& call, const Topology& topology) {
  const std::vector<Algorithm>& families = algorithms_of(call.kind);
  int cheapest = 0;
  Duration least = Duration::max();
  for (std::size_t i = 0; i < families.size() && families.size() > 1; ++i) {
    const Duration time = cost(families[i], call.bytes, topology, call.root);
    if (time >= least) continue;
    least = time;
    cheapest = static_cast<int>(i);
  }
  return cheapest;
}

}  // namespace motley
