#include "comm/algorithm/traffic.h"

#include <algorithm>
#include <cmath>

namespace motley {
namespace {

Duration time_of(double bytes, double bytes_per_second) {
  return Duration(std::llround(bytes / bytes_per_second * 1e9));
}

}  // namespace

Traffic::Traffic(const Topology& topology)
    : topology_(&topology),
      free_(static_cast<std::size_t>(topology.busy_things())),
      worked_(static_cast<std::size_t>(topology.ranks())),
      served_(free_.size(), -1) {}

Duration Traffic::send(int from, int to, double bytes, Duration now) {
  const Topology::Route route = topology_->route(from, to);
  const Link& link = *route.link;
  const Duration at_port = link.per_message + time_of(bytes, route.out_bytes_per_second);
  if (route.out == topology_->core_of(from)) return on_core(from, at_port, now) + link.latency;
  Duration& port = free(route.out);
  const Duration start = std::max(port, now);
  Duration end = occupy(port, at_port, now);
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
  // A core takes the message in now; a port has done so while it came.
  if (route.in == topology_->core_of(to)) return on_core(to, time, now);
  return free(route.in) = std::max(now, free(route.in) + time);
}

Duration Traffic::work(int rank, Duration time, Duration now) {
  if (topology_->core_of(rank) >= 0) return on_core(rank, time, now);
  return occupy(worked_[static_cast<std::size_t>(rank)], time, now);
}

Duration Traffic::turn(int from, int to, Duration now) const {
  const Topology::Route route = topology_->route(from, to);
  const auto host = static_cast<std::size_t>(topology_->host_of(to));
  if (route.in != topology_->core_of(to) || topology_->hosts()[host].ranks.size() > kMostInTurn)
    return now;
  const Duration ready = std::max(now, worked_[static_cast<std::size_t>(to)]);
  return std::max(ready, free_for(core_for(to, ready), to));
}

Duration Traffic::free_for(int core, int rank) const {
  const int served = served_[static_cast<std::size_t>(core)];
  const auto host = static_cast<std::size_t>(topology_->host_of(rank));
  const bool goes_on = served == rank || served < 0;
  if (goes_on || topology_->hosts()[host].ranks.size() > kMostInTurn) return free(core);
  return free(core) + topology_->costs().per_turn;
}

int Traffic::core_for(int rank, Duration ready) const {
  const Host& host = topology_->hosts()[static_cast<std::size_t>(topology_->host_of(rank))];
  int best = topology_->core_of(rank);
  if (host.ranks.size() <= static_cast<std::size_t>(host.cores)) return best;
  const int first = topology_->core_of(host.ranks.front());
  for (int core = first; core < first + host.cores; ++core) {
    const Duration start = std::max(ready, free_for(core, rank));
    const Duration least = std::max(ready, free_for(best, rank));
    if (start < least || (start == least && free(core) > free(best))) best = core;
  }
  return best;
}

Duration Traffic::on_core(int rank, Duration time, Duration now) {
  Duration& worked = worked_[static_cast<std::size_t>(rank)];
  const Duration ready = std::max(worked, now);
  const int core = core_for(rank, ready);
  const Duration start = std::max(ready, free_for(core, rank));
  served_[static_cast<std::size_t>(core)] = rank;
  return worked = occupy(free(core), time, start);
}

}  // namespace motley
