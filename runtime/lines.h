// runtime/lines.h: messages between two workers, in order, apart from those of all others: of
// users, and of other lines on the same communicator, before and after.
#pragma once

#include <vector>

#include "comm/communicator.h"

namespace motley::runtime {

class Lines {
 public:
  // Made by all ranks in the same order as they make calls of all ranks. `comm` must outlive this.
  explicit Lines(Communicator& comm);

  // As Communicator::send() and recv(). One thread at a time for each rank and direction.
  Request send(ConstView data, int to, Duration timeout) const;
  Request recv(View data, int from, Duration timeout) const;

 private:
  Communicator& comm_;
  std::vector<Group> to_, from_;  // by rank; pairs, with this rank as the first, or the second
};

}  // namespace motley::runtime
