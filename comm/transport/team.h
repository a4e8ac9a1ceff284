// comm/transport/team.h: whole collectives that a transport runs itself, beside sending messages.
//
// Ranks that can load from each other's memory need no messages: each shows what it has, and reads
// what it needs. A team runs such collectives for any groups of its ranks, many at a time, without
// set-up and without memory that grows with the number of distinct groups. The engine runs them as
// it runs schedules: it polls them, and gives up those that are late, cancelled or hopeless.
//
// Every call of a team meets all members: it completes only after each of them has made it.
// One thread at a time, as in Transport.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "comm/clock.h"
#include "comm/device.h"
#include "comm/error.h"
#include "comm/group.h"
#include "comm/shared_buffer.h"
#include "comm/topology.h"
#include "comm/transport/transport.h"
#include "comm/view.h"

namespace motley {

// One member's part in a collective.
struct TeamCall {
  CallId id;
  Fingerprint fingerprint;  // kind, dtype, op and root (an index in the group) are taken from here
  const Group* group = nullptr;  // outlives the call
  ConstView in;
  View out;
  // Where blocks vary: the elements of each block of `in` and of `out`, by member; as long as
  // begin() takes.
  std::span<const std::size_t> in_counts = {};
  std::span<const std::size_t> out_counts = {};
  double weight = 1;  // of `in`, where the operation is kWeightedSum
  // Of device memory:
  bool deterministic = false;  // see CallOptions
  StreamRef stream{};          // the call comes after what is in it
  Duration timeout{};
};

// A call under way.
class TeamRun {
 public:
  enum class State : std::uint8_t { kRuns, kDone, kMismatch, kGone, kFull };

  State state = State::kRuns;
  // kRuns: the rank that the call waits for, or -1; kMismatch, kGone: the rank to blame.
  int peer = -1;
  // kMismatch: what we called, and what that rank did. Where blocks vary, of the block between us.
  Fingerprint ours;
  Fingerprint theirs;

 protected:
  ~TeamRun() = default;
};

class Team {
 public:
  virtual ~Team() = default;
  // Whether the team runs such a call of `members` ranks, the same on all of them. `bytes`: of the
  // larger of `in` and `out`; 0 where blocks vary.
  virtual bool runs(CallKind kind, std::size_t bytes, int members) const noexcept = 0;
  // What a call that it runs costs among such ranks, all on one host, by the same measure as
  // schedules (algorithm/cost.h).
  virtual Duration price(CallKind kind, std::size_t bytes, const Topology& among) const = 0;
  // Whether the team itself finds members that disagree; else the engine compares what they called.
  virtual bool compares() const noexcept { return true; }
  // Begins a call that it runs.
  virtual TeamRun& begin(const TeamCall& call) = 0;
  // Moves what can be moved without waiting. True if anything was.
  virtual bool advance(TeamRun& run) = 0;
  // The call is over here: complete, or given up because of `why`. Afterwards no buffer of it is
  // touched, by anyone.
  virtual void end(TeamRun& run, const Error* why = nullptr) noexcept = 0;
  // Memory that all ranks of the team can load from and store to.
  //   errors  kUnavailable where there is no room, with the numbers
  virtual SharedBuffer allocate(std::size_t bytes) = 0;
};

}  // namespace motley
