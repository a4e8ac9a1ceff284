#include "comm/algorithm/traffic.h"

#include <algorithm>

namespace motley {
namespace {

Duration time_of(double bytes, double bytes_per_second) {
  return Duration(static_cast<Duration::rep>(bytes / bytes_per_second * 1e9));
}

}  // namespace

Traffic::Traffic(const Topology& topology)
    : topology_(&topology),
      free_(static_cast<std::size_t>(topology.busy_things())),
      worked_(static_cast<std::size_t>(topology.ranks())) {}

Duration Traffic::send(int from, int to, double bytes, Duration now) {
  const Topology::Route route = topology_->route(from, to);
  const Link& link = *route.link;
  Duration& port = free(route.out);
  const Duration start = std::max(port, now);
  Duration end = occupy(port, link.per_message + time_of(bytes, route.out_bytes_per_second), now);
  const Duration on_link = time_of(bytes, link.bytes_per_second);
  if (route.wire >= 0) {
    end = std::max(end, occupy(free(route.wire), on_link, start + link.per_message));
  } else {  // the first byte sets out after the time per message, whatever holds up the others
    end = std::max(end, start + link.per_message + on_link);
  }
  return end + link.latency;
}

Duration Traffic::take_in(int from, int to, double bytes, Duration now) {
  const Topology::Route route = topology_->route(from, to);
  const Duration time = route.link->per_message + time_of(bytes, route.in_bytes_per_second);
  // Where the port takes out and in in turns, it takes the message in now; else it has done so
  // while the message came.
  if (route.in == topology_->core_of(to)) return occupy(free(route.in), time, now);
  return free(route.in) = std::max(now, free(route.in) + time);
}

Duration Traffic::work(int rank, Duration time, Duration now) {
  const int core = topology_->core_of(rank);
  return occupy(core >= 0 ? free(core) : worked_[static_cast<std::size_t>(rank)], time, now);
}

}  // namespace motley
