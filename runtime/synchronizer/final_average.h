// runtime/synchronizer/final_average.h: the mean over the workers that are there when all have
// finished. A barrier comes first, in which the fast wait for the slow.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "runtime/synchronizer.h"

namespace motley::runtime {

class FinalAverage {
 public:
  // Made by all ranks in the same order as they make calls of all ranks.
  FinalAverage(Communicator& comm, Duration timeout)
      : comm_(comm), timeout_(timeout), number_(comm.world().next_call()) {}

  // Over all ranks. Throws kPeerLost if one has died.
  SyncReport over_all(View parameters) const;
  // Over those that are alive: each death costs another attempt without the dead. `parameters` are
  // unchanged until an attempt has succeeded.
  SyncReport over_survivors(View parameters) const;

 private:
  SyncReport over(const std::vector<int>& ranks, View parameters) const;

  Communicator& comm_;
  Duration timeout_;
  std::uint32_t number_;  // tells this end of training from others of the same communicator
};

}  // namespace motley::runtime
