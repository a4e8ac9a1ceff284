// runtime/synchronizer/together.h: the mean over all workers that still make steps. Workers may
// make different numbers of them: who has finished joins the averages of the others, with no
// weight, until none is left, and so ends with their model.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "runtime/synchronizer.h"
#include "runtime/synchronizer/final_average.h"

namespace motley::runtime {

class Together {
 public:
  Together(Communicator& comm, const SynchronizerOptions& options)
      : comm_(comm), options_(options), final_(comm, options.finish_timeout) {}

  SyncReport average(View parameters);
  SyncReport finish(View parameters);

 private:
  SyncReport meet(View parameters, std::int8_t working, Duration timeout);

  Communicator& comm_;
  SynchronizerOptions options_;
  FinalAverage final_;
};

}  // namespace motley::runtime
