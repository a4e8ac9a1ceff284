// comm/transport/factory.h: makes the transports that join processes.
#pragma once

#include <memory>
#include <string>

#include "comm/clock.h"
#include "comm/options.h"
#include "comm/store.h"
#include "comm/transport/transport.h"

namespace motley {

// What a transport needs in order to find its peers. Ranks may be processes or threads of one
// process.
struct TransportSetup {
  int rank = 0;
  int size = 1;
  Store& store;      // addresses are exchanged under keys that start with `name`
  std::string name;  // distinguishes several sets of transports in one store, e.g. "world"
  Clock& clock;
  const Options& options;
  TimePoint deadline;  // until when peers are waited for; then kTimeout, naming the missing
};

// Processes (or threads) of one host, through shared memory.
std::unique_ptr<Transport> make_shm_transport(const TransportSetup& setup);
// Any hosts, through UCX. Throws kUnavailable where UCX is not in this build.
std::unique_ptr<Transport> make_ucx_transport(const TransportSetup& setup);

}  // namespace motley
