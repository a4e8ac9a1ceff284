// comm/partial_reduce.h: average with whoever is ready, instead of waiting for everyone.
//
//   PartialReducer reducer(comm, {.group_size = 2});
//   for (std::int64_t step = 0; step < steps; ++step) {
//     train_locally(model);
//     reducer.average(model, step);        // instead of all_reduce(model, ReduceOp::kAverage)
//   }
//   reducer.leave();                       // the others go on without us
//
// Each worker steps locally and says that it is ready; the controller puts the first `group_size`
// workers that are ready into a group, which averages with uniform weights and goes on. Nobody
// waits for the slowest. The mean of all models is kept; members of a group end bitwise equal;
// non-members are untouched. A member that dies in mid-reduce costs its group a retry with the
// survivors.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/clock.h"
#include "comm/device.h"
#include "comm/view.h"

namespace motley {

class Communicator;

struct PartialOptions {
  int group_size = 2;  // workers averaged at a time, P; fewer when fewer are left
  Duration timeout{};  // bound on one average(), Options::timeout if zero
};

struct PartialResult {
  std::vector<int> group;  // the ranks averaged, ascending; this rank is always in it
  int attempts = 1;        // 1 + retries after members died
  Duration waiting{};      // from the call until the (last) group was known
  Duration averaging{};    // from there to the end
  bool solo() const noexcept { return group.size() == 1; }  // nobody was left to average with
};

class PartialReducer {
 public:
  // `comm` must outlive the reducer and needs a controller unless it has one rank.
  // Throws kInvalid if group_size is not in [2, comm.size()] (with one rank, it is ignored).
  PartialReducer(Communicator& comm, const PartialOptions& options);
  PartialReducer(PartialReducer&&) noexcept;
  ~PartialReducer();  // leaves, if leave() was not called

  // Averages data [n] in place with the group that the controller chooses. Same n and dtype on
  // every rank. A group commits when all its living members have the average, so they end alike;
  // until then, and if this throws, data is unchanged.
  //   data    in host memory, or in that of a device: then a pinned copy of it is averaged by the
  //           host, with the same bits, and copied back by the commit; members may differ in this
  //   step    this worker's count of local steps, never decreasing; seen in messages only
  //   stream  of data in device memory: what is in it so far comes first. When the call has
  //           returned, work in any stream sees the average.
  //   cost    2(P-1)/P * n elements sent, two round trips to the controller; n elements of memory,
  //           2n of pinned memory for data on a device
  //   errors  kTimeout (naming who was waited for), kMismatch (n, dtype, group_size): the reducer
  //           may be used again; kPeerLost (the controller is gone), kAborted (this rank was
  //           declared dead); kUnavailable for device memory where there is no device
  PartialResult average(View data, std::int64_t step, StreamRef stream = {});

  // This worker makes no more steps. Idempotent; the others' groups shrink as needed.
  void leave();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace motley
