// test/support/simulation.h: ranks as blocking code on fibers, in virtual time.
//
//   run_simulated({.topology = Topology::uniform(4)},
//                 [](int rank, std::unique_ptr<Transport> transport, Clock& clock) {
//                   Communicator comm(std::move(transport), clock, {});
//                   comm.barrier().wait();
//                 });
#pragma once

#include <functional>
#include <memory>

#include "comm/transport/sim.h"

namespace motley::test {

using SimulatedRank = std::function<void(int rank, std::unique_ptr<Transport>, Clock&)>;

// Runs `body` once for each rank of options.topology and returns when all have returned. A wait
// that ends at its deadline, and the clock's sleep, take virtual time only. `faults` may kill,
// stall and part ranks beforehand; the body of a rank that dies is left by an exception at its next
// wait or sleep. Throws what a body threw first in virtual time, apart from dead ranks' ends;
// kTimeout, naming the ranks, if some wait for what cannot happen. options.block and options.notify
// are not to be set.
void run_simulated(const SimOptions& options, const SimulatedRank& body,
                   const std::function<void(SimNetwork&)>& faults = {});

}  // namespace motley::test
