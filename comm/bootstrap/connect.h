// comm/bootstrap/connect.h: from options to a connection with the controller, however the job was
// started.
#pragma once

#include <memory>

#include "comm/control/client.h"

namespace motley {

// Rank 0 starts the controller where that is its task; the connection keeps it. The others look for
// it until `deadline`. Throws kTimeout, naming where they looked; kInvalid if refused.
std::unique_ptr<ControlClient> connect_to_job(const Options& options, Clock& clock,
                                              TimePoint deadline);

}  // namespace motley
