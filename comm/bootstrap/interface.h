// comm/bootstrap/interface.h: the networks of this host, and which of them leads where.
//
// Nothing here asks for the host's own name: what that resolves to is often 127.0.1.1, or nothing.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/bootstrap/endpoint.h"
#include "comm/clock.h"

namespace motley {

// One address of one network device.
struct Interface {
  std::string name;
  IpAddress address;
  int prefix = 0;  // bits that all of its network share
};

// Those that are up. IPv4 before IPv6, loopback last; link-local addresses are left out.
std::vector<Interface> interfaces();

// Those of `all` that `wanted` names: a device or a subnet. Throws kUnavailable, listing what there
// is, if none does; kInvalid if it is neither.
std::vector<Interface> select_interfaces(const std::vector<Interface>& all,
                                         std::string_view wanted);

// The one of `all` from which the kernel would send to `target`.
std::optional<Interface> route_to(const IpAddress& target, const std::vector<Interface>& all);

// What others may use for `url`, at which this host listens: one of its addresses, if that names
// all of them ("tcp://0.0.0.0:4000", "tcp://[::]:4000"); the first that is not loopback, if there
// is one.
std::string reachable_url(const std::string& url);

// The first of `candidates` that takes a TCP connection at its port. Tries all at once; earlier
// ones get a moment more when a later one answers. Empty when all have refused, or at `deadline`.
std::optional<std::size_t> first_to_answer(const std::vector<std::pair<IpAddress, int>>& candidates,
                                           TimePoint deadline);

}  // namespace motley
