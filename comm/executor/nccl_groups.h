// comm/executor/nccl_groups.h: which calls on device memory NCCL runs, and how groups get
// communicators of their own.
//
// That of all ranks is made by connect_all(). A group that was used often gets one in the call that
// shows it, which then waits for the others; that takes host calls, in which a member that is late
// or dead has a name. Which calls go where follows from what all members know.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/clock.h"
#include "comm/executor/call.h"
#include "comm/executor/engine.h"
#include "comm/group.h"
#include "comm/options.h"
#include "comm/transport/nccl.h"

namespace motley {

class NcclGroups {
 public:
  // The call on device memory, from 0, with which a group gets a communicator of its own.
  static constexpr std::uint32_t kOften = 16;
  // Communicators of a rank, at most: each takes device memory.
  static constexpr int kMost = 8;

  // A call on the memory of the host that has completed when it returns: all_reduce, by minimum, or
  // broadcast, from the group's first member.
  using HostCall =
      std::function<void(CallKind kind, View data, const Group& group, Duration timeout)>;

  NcclGroups(const Options& options, HostCall host_call)
      : options_(options), host_call_(std::move(host_call)) {}

  // Connects the devices that are current on all ranks. Throws kUnavailable, kTimeout or kPeerLost
  // on every rank, if any cannot.
  void connect_all(const Group& world, Engine& engine);
  // Who runs `call`, on device memory; null: not NCCL. Throws kInvalid if its buffers do not both
  // lie on the device.
  Team* team_for(const Call& call, const Group& world, Engine& engine);

 private:
  void connect(const Group& group, Duration timeout, Engine& engine);
  bool all_agree(const Group& group, bool mine, Duration timeout);

  const Options& options_;
  HostCall host_call_;
  std::unique_ptr<Nccl> nccl_;
};

}  // namespace motley
