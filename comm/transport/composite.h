// comm/transport/composite.h: two transports as one: a near one among the ranks of a host, a far
// one to those of other hosts. Messages between two ranks always go the same way, so each of the
// two keeps its promises.
#pragma once

#include <memory>
#include <vector>

#include "comm/transport/factory.h"

namespace motley {

// By setup.hosts: shared memory among the ranks of a host, UCX to the others; UCX alone for a rank
// that is alone on its host.
std::unique_ptr<Transport> make_composite_transport(const TransportSetup& setup);

// `near` joins `members` (ascending, in ranks of `far`), numbered from 0; `far` joins the rest.
std::unique_ptr<Transport> combine(std::unique_ptr<Transport> near, std::vector<int> members,
                                   std::unique_ptr<Transport> far);

}  // namespace motley
