// comm/topology.h: which ranks share a host, and what links and reductions cost.
//
//   const auto flat = Topology::uniform(8, {.latency = std::chrono::microseconds(20)});
//   const auto racks = Topology::hosts({0, 0, 1, 1}, {.between = {.bytes_per_second = 1e8}});
//
// The same object prices schedules (algorithm/cost.h) and feeds the simulator. Every rank has one
// port, through which its messages go out one after another, and one through which they come in; a
// message takes the latency of its link, plus its size over the link's bandwidth.
#pragma once

#include <vector>

#include "comm/clock.h"

namespace motley {

// One direction of the way between two ranks.
struct Link {
  Duration latency = std::chrono::microseconds(20);
  double bytes_per_second = 1.25e9;
};

struct TopologyCosts {
  Link within = {.latency = std::chrono::microseconds(1), .bytes_per_second = 5e9};  // one host
  Link between{};                                                                    // two hosts
  double reduce_bytes_per_second = 4e9;  // of op(chunk, received), in bytes received
};

class Topology {
 public:
  // `ranks` ranks, all pairs of which are joined by like links.
  static Topology uniform(int ranks, const Link& link = {});
  // Rank r is on host host_of[r]; hosts are numbered from 0.
  // Throws kInvalid if there is no rank, or a host, latency, bandwidth or speed is out of range.
  static Topology hosts(std::vector<int> host_of, const TopologyCosts& costs);

  int ranks() const noexcept { return static_cast<int>(host_of_.size()); }
  int host_of(int rank) const noexcept { return host_of_[static_cast<std::size_t>(rank)]; }
  bool same_host(int a, int b) const noexcept { return host_of(a) == host_of(b); }
  // What a message from one of two different ranks to the other costs. O(1).
  const Link& link(int from, int to) const noexcept {
    return same_host(from, to) ? costs_.within : costs_.between;
  }
  const TopologyCosts& costs() const noexcept { return costs_; }
  // The topology among some of the ranks, numbered by position in `members`.
  Topology subset(const std::vector<int>& members) const;

 private:
  Topology(std::vector<int> host_of, const TopologyCosts& costs);

  std::vector<int> host_of_;
  TopologyCosts costs_;
};

}  // namespace motley
