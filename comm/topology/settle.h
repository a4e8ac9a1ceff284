// comm/topology/settle.h: gives a communicator the topology that its options ask for.
#pragma once

#include <vector>

#include "comm/communicator.h"

namespace motley {

// Every rank calls this once, before all others. host_of: for each rank the number of its host.
// Options::topology of rank 0 counts: "hosts", what is known of the hosts and of the transport;
// "probe", what is measured then; "auto", the latter where there are several hosts; else the file
// of that name, which only rank 0 reads. Throws, on every rank alike, kInvalid or kIo if the file
// is wrong or describes another number of ranks.
void settle_topology(Communicator& comm, const std::vector<int>& host_of);

}  // namespace motley
