#include "comm/topology.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>
#include <utility>

#include "comm/error.h"

namespace motley {
namespace {

void check_speed(const char* what, double bytes_per_second) {
  if (std::isfinite(bytes_per_second) && bytes_per_second > 0) return;
  throw Error(ErrorCode::kInvalid,
              fmt::format("topology: the {} is {} bytes/s. It must be positive and finite.", what,
                          bytes_per_second));
}

void check_link(const char* what, const Link& link) {
  check_speed(what, link.bytes_per_second);
  if (link.latency < Duration::zero()) {
    throw Error(
        ErrorCode::kInvalid,
        fmt::format(
            "topology: the latency that goes with the {} is {} ns. It must not be negative.", what,
            link.latency.count()));
  }
}

}  // namespace

Topology::Topology(std::vector<int> host_of, const TopologyCosts& costs)
    : host_of_(std::move(host_of)), costs_(costs) {
  if (host_of_.empty())
    throw Error(ErrorCode::kInvalid, "topology: it has no ranks. Name at least one.");
  for (std::size_t rank = 0; rank < host_of_.size(); ++rank) {
    if (host_of_[rank] >= 0) continue;
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("topology: rank {} is on host {}. Number hosts from 0.", rank, host_of_[rank]));
  }
  check_link("bandwidth within a host", costs.within);
  check_link("bandwidth between hosts", costs.between);
  check_speed("speed of reduction", costs.reduce_bytes_per_second);
}

Topology Topology::uniform(int ranks, const Link& link) {
  std::vector<int> host_of(static_cast<std::size_t>(ranks < 0 ? 0 : ranks));
  std::iota(host_of.begin(), host_of.end(), 0);
  return Topology(std::move(host_of), {.within = link, .between = link});
}

Topology Topology::hosts(std::vector<int> host_of, const TopologyCosts& costs) {
  return Topology(std::move(host_of), costs);
}

Topology Topology::subset(const std::vector<int>& members) const {
  std::vector<int> host_of;
  for (const int rank : members) host_of.push_back(this->host_of(rank));
  return Topology(std::move(host_of), costs_);
}

}  // namespace motley
