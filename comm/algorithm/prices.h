// comm/algorithm/prices.h: what the steps of a schedule cost, each by itself.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/algorithm/cost.h"
#include "comm/algorithm/schedule.h"
#include "comm/clock.h"
#include "comm/topology.h"

namespace motley {

inline constexpr int kPricedWindow = 8;  // the executor's
inline constexpr int kPricedLanes = 4;   // likewise: pieces at a time

// What messages and reductions of a rank in one piece cost.
class Prices {
 public:
  // `schedule`: any rank's. `topology` must outlive it.
  Prices(const Workload& work, const Schedule& schedule, const Topology& topology);

  const Topology& topology() const noexcept { return topology_; }
  std::int64_t pieces() const noexcept { return pieces_; }
  // As if the call were not cut.
  void join_pieces();
  // How long a rank works on a step itself.
  Duration work(const Schedule& schedule, const Step& step) const;
  // How long the receiver copies a message that comes before its turn, within a host.
  Duration keeping(int from, int to, double bytes) const;
  double bytes_of(const Schedule& schedule, const Step& step) const;
  // How long a message occupies the sender's port, if no other rank shares it.
  Duration transfer(const Schedule& schedule, int rank, const Step& step) const;

 private:
  const Topology& topology_;
  std::vector<std::uint32_t> weights_;
  std::int64_t pieces_ = 1;
  double unit_bytes_ = 0;  // of a chunk; where there are weights, of one unit of weight
};

}  // namespace motley
