// comm/executor/model_copies.h: a model that is averaged, beside what it becomes. Of one in host
// memory only the latter is copied. One on a device has pinned copies of both: it is written last.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "comm/clock.h"
#include "comm/communicator.h"
#include "comm/device.h"
#include "comm/view.h"

namespace motley {

class ModelCopies {
 public:
  explicit ModelCopies(Communicator& comm);
  ~ModelCopies();

  // What `data` holds, in host memory. `last_average`, of the last shadow_of(), stays what it was,
  // and may lie elsewhere then.
  //   errors  kTimeout; as copy()
  ConstView bring(View data, StreamRef stream, TimePoint deadline, View& last_average);
  // Where its average is to go, in host memory that is kept for the next.
  View shadow_of(View data);
  // Writes that into `data`. The other members may have gone on with the average: what is left to
  // do is this rank's own.
  //   errors  kIo if a device does not take it within `patience`
  void commit(View data, ConstView average, Duration patience);

 private:
  struct Pinned;

  Communicator& comm_;
  std::vector<std::byte> shadow_;
  std::unique_ptr<Pinned> pinned_;
};

}  // namespace motley
