// comm/transport/nccl_communicator.h: one NCCL communicator, owned, that never blocks for longer
// than a deadline.
#pragma once

#include <nccl.h>

#include <functional>
#include <optional>
#include <string>

#include "comm/clock.h"
#include "comm/device.h"
#include "comm/error.h"
#include "comm/group.h"
#include "comm/transport/nccl.h"
#include "comm/view.h"

namespace motley {

class NcclCommunicator {
 public:
  // Begins to connect `rank` with the other members of `group`.
  NcclCommunicator(const Group& group, int rank, const NcclId& id, Clock& clock);
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;
  ~NcclCommunicator();

  const Group& group() const noexcept { return group_; }
  // A member's place in the group, by its rank.
  int place_of(int rank) const noexcept { return group_.index_of(rank); }
  ncclComm_t handle() const noexcept { return handle_; }

  // Whether all that was asked for is under way. Throws what NCCL found wrong since it was made.
  bool settled();
  // Waits for that until the deadline of the call; then throws kTimeout.
  void settle();
  // For the calls that follow: until when they may take to be put into their streams.
  void set_deadline(TimePoint deadline) noexcept { deadline_ = deadline; }

  // Whatever `post` asks NCCL for, as one operation.
  void together(const std::function<void()>& post);
  // Of `status`, which `doing` returned.
  void check(ncclResult_t status, const char* doing);

  // Ends what it is doing on the device. `why` is what calls on it are told from now on.
  void abort(const Error& why) noexcept;
  const std::optional<Error>& aborted() const noexcept { return aborted_; }
  // What NCCL said first that went wrong, if anything.
  const std::optional<Error>& broken() const noexcept { return broken_; }

 private:
  [[noreturn]] void fail(ncclResult_t status, const char* doing);

  Group group_;
  Clock& clock_;
  ncclComm_t handle_ = nullptr;
  TimePoint deadline_{};
  std::optional<Error> aborted_;
  std::optional<Error> broken_;
};

}  // namespace motley
