// comm/transport/nccl.h: collectives of device memory over NCCL, put into the caller's stream.
//
// A connected group has an NCCL communicator of its own and runs NCCL's collectives. Any other
// group runs as sends and receives among its members on the communicator of all ranks, and so
// needs no set-up and no memory of its own. Those also serve where NCCL lacks a type or an
// operation, or does not promise the bits that we do.
//
// Calls run in the order in which they began, whatever their groups and streams: ranks that two
// calls have in common must begin them in the same order. Ranks that disagree on a call hang NCCL,
// and so do ranks that are gone: the caller of end() finds out, and end() of a call that is not
// complete aborts its communicator. An aborted communicator is never used again; every call on it
// fails and says which call it was.
//
// No NCCL type leaves the nccl_*.cc files.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "comm/clock.h"
#include "comm/group.h"
#include "comm/transport/team.h"

namespace motley {

// What the members of a communicator must share before they can connect.
using NcclId = std::array<std::byte, 128>;

struct NcclSetup {
  int rank = 0;
  int size = 1;
  Clock& clock;
  // Device memory for what others send us, taken at the first call that needs it; the same on all
  // ranks.
  std::size_t scratch_bytes = std::size_t{32} << 20;
};

class Nccl : public Team {
 public:
  // --- Connecting a group: on all of its members, one group at a time ----------------------------
  // Begins to make the communicator of `group`, with an id that one member made. The first time, on
  // the device that is current.
  virtual void connect(const Group& group, const NcclId& id, TimePoint deadline) = 0;
  // Whether every member has. Moves it on; waits, until the deadline, only for those that have
  // begun. Throws what NCCL says went wrong.
  virtual bool connected() = 0;
  // Aborts what is not connected yet.
  virtual void stop_connecting() noexcept = 0;

  // Communicators made so far, aborted ones among them.
  virtual int communicators() const noexcept = 0;
  // Whether `group` has one of its own.
  virtual bool has(const Group& group) const noexcept = 0;
};

// Throws kUnavailable where NCCL is not in this build, and what NCCL says.
NcclId new_nccl_id();

// Throws kUnavailable where NCCL is not in this build.
std::unique_ptr<Nccl> make_nccl(const NcclSetup& setup);

}  // namespace motley
