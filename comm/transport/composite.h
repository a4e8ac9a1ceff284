// comm/transport/composite.h: two transports as one: shared memory among the ranks of a host, UCX
// to those of other hosts. Messages between two ranks always go the same way, so each of the two
// keeps its promises; groups whose members are all on one host use its team.
#pragma once

#include <memory>

#include "comm/transport/factory.h"

namespace motley {

// By setup.hosts; UCX alone for a rank that is alone on its host.
std::unique_ptr<Transport> make_composite_transport(const TransportSetup& setup);

}  // namespace motley
