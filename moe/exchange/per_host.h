// moe/exchange/per_host.h: a token's row crosses to a host once: to one rank there, the forwarder,
// which hands it on to the ranks of its host that want it, as often as they do.
//
//   rows that cross to a host: distinct tokens with a choice there    messages: one for every pair
//   of a rank and another host, then one for every pair of ranks of a host
// DeepEP's normal kernels, and two-level all-to-all, cross so.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/topology.h"
#include "moe/exchange/route.h"
#include "moe/plan.h"

namespace motley::moe::exchange {

// Who forwards: a pure function of the hosts of all ranks.
struct Hosts {
  explicit Hosts(const Topology& topology);

  std::vector<std::size_t> host_of;                // [ranks]
  std::vector<std::vector<std::size_t>> ranks_of;  // [hosts], ascending
  // The rank of `host` that forwards what `from`, of another one, sends there; on its own host
  // `from`.
  std::size_t forwarder(std::size_t from, std::size_t host) const;
};

// What a rank sends to each host: its distinct tokens, ascending, and for each of the plan's rows
// for the host, in the plan's order, which of them it is.
struct Crossing {
  std::vector<std::vector<std::int64_t>> tokens;    // [hosts]
  std::vector<std::vector<std::int32_t>> token_of;  // [hosts]
};
Crossing make_crossing(const Plan& plan, const Placement& placement, const Hosts& hosts);

// What a rank does as a forwarder and as a receiver.
struct Forwarding {
  std::vector<std::size_t> cross_send, cross_receive;  // [ranks], rows of distinct tokens
  std::vector<std::size_t> note_send, note_receive;    // [ranks], numbers of Crossing::token_of
  std::vector<std::size_t> send, receive;              // [ranks], rows within the host
  std::vector<std::size_t> base;  // [ranks], where rows of each source begin among the received
};
// `distinct` [ranks, hosts]: how many tokens every rank sends to every host.
Forwarding make_forwarding(const CountMatrix& counts, const std::vector<std::int64_t>& distinct,
                           const Placement& placement, const Hosts& hosts, int rank);

}  // namespace motley::moe::exchange
