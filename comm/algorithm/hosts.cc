#include "comm/algorithm/hosts.h"

#include <algorithm>

#include "comm/topology.h"

namespace motley {

Hosts::Hosts(const Shape& shape) : count_(shape.size) {
  if (shape.topology == nullptr) return;
  const std::vector<Host>& hosts = shape.topology->hosts();
  count_ = static_cast<int>(hosts.size());
  bool alike = true;
  int next = 0;
  for (const Host& host : hosts) {
    const int size = static_cast<int>(host.ranks.size());
    most_ = std::max(most_, size);
    alike = alike && host.ranks.size() == hosts.front().ranks.size() && host.ranks.front() == next;
    in_runs_ = in_runs_ && host.ranks.back() - host.ranks.front() == size - 1;
    next += size;
  }
  if (alike && in_runs_) return;
  host_of_.resize(at(shape.size));
  index_of_.resize(at(shape.size));
  for (int host = 0; host < count_; ++host) {
    first_.push_back(static_cast<int>(ranks_.size()));
    for (const int rank : hosts[at(host)].ranks) {
      host_of_[at(rank)] = host;
      index_of_[at(rank)] = static_cast<int>(ranks_.size()) - first_.back();
      ranks_.push_back(rank);
    }
  }
  first_.push_back(shape.size);
}

bool has_levels(const Shape& shape) {
  if (shape.topology == nullptr) return false;
  const std::size_t hosts = shape.topology->hosts().size();
  return hosts > 1 && hosts < static_cast<std::size_t>(shape.size);
}

}  // namespace motley
