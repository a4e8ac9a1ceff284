// runtime/synchronizer/final_average.h: the mean over the workers that are there when all have
// finished. A barrier comes first, in which the fast wait for the slow.
#pragma once

#include "comm/communicator.h"
#include "runtime/synchronizer.h"

namespace motley::runtime {

class FinalAverage {
 public:
  FinalAverage(Communicator& comm, Duration timeout) : comm_(comm), timeout_(timeout) {}

  // Over all ranks. Throws kPeerLost if one has died.
  SyncReport over_all(View parameters) const;
  // Over those that are alive: each death costs another attempt without the dead. `parameters` are
  // unchanged until an attempt has succeeded.
  SyncReport over_survivors(View parameters) const;

 private:
  SyncReport over(const std::vector<int>& ranks, View parameters) const;

  Communicator& comm_;
  Duration timeout_;
};

}  // namespace motley::runtime
