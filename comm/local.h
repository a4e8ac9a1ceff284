// comm/local.h: ranks as threads of one process, for tests, examples and small machines.
//
//   run_local(4, [](Communicator& comm) {
//     std::vector<float> x(1000, comm.rank());
//     comm.all_reduce(x, ReduceOp::kSum).wait();
//   });
#pragma once

#include <functional>

#include "comm/communicator.h"
#include "comm/options.h"

namespace motley {

// Runs `body` on `size` threads, rank r as the r-th, with a controller of their own. Returns when
// all have returned. A rank that throws is reported lost to the others, so that nobody waits for
// it; then the error of the rank that threw first is thrown here.
void run_local(int size, const std::function<void(Communicator&)>& body, const Options& = {});

}  // namespace motley
