// comm/transport/ucx_link.h: how a link between hosts is used, by what is known of it. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "comm/options.h"
#include "comm/topology.h"

namespace motley {

struct UcxLinkUse {
  static constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

  std::uint64_t window = 0;              // bytes to a receiver, not yet taken by it
  std::size_t rendezvous_from = kNever;  // messages of at least so many bytes go by rendezvous
};

// What all links of a job have in common.
struct UcxLimits {
  std::uint64_t least_window = 0;  // leaves room for the largest message at any time
  std::uint64_t most_window = 0;
  bool remote_memory = false;         // the network reads a peer's memory without its help
  std::int64_t rendezvous_from = -1;  // as Options::ucx_rendezvous

  static UcxLimits of(const Options& options, bool remote_memory) noexcept;
};

// Nothing is known of the link yet.
UcxLinkUse use_unknown(const UcxLimits& limits) noexcept;
// The window holds twice what is on the way while the first byte travels there and word of it back.
// Rendezvous costs three trips more and saves a copy, so it is for messages whose transfer takes
// ten times as long as those trips, where the network does the transfer by itself.
UcxLinkUse use_of(const Link& link, const UcxLimits& limits) noexcept;

}  // namespace motley
