// comm/topology/probe.h: measures what the model of topology.h asks for.
#pragma once

#include "comm/communicator.h"
#include "comm/topology.h"

namespace motley {

// Every rank of `comm` calls this, with the same hosts, ranks and sockets in `known`. Some 10 ms
// for links within hosts and across sockets; some 60 ms for each of the rounds between hosts that
// it takes to hear of all pairs of up to 8 hosts (one fewer than hosts), or of some pairs of more;
// longer where links have less than 100 Mbit/s. All ranks get the same answer, equal to the bit.
// Measured are, through the executor: the time that starting a call takes, latencies, times per
// message, bandwidths; and the speeds of reducing and copying. Where up to 8 ranks of a host share
// its cores, whole calls say what messages and turns take there (crowd.h): some 100 ms more. Hosts
// get the cores that their processes may use and one port.
Topology probe(Communicator& comm, const Topology& known);

}  // namespace motley
