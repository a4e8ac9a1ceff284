// comm/communicator.h: one rank's seat among the ranks of a job. Start here.
//
//   Communicator comm = Communicator::join(Options::from_environment());
//   comm.all_reduce(gradients, ReduceOp::kSum).wait();
//
// Every member of a group makes the same calls on it in the same order. A communicator may be used
// from one thread at a time; requests may be waited for from any. No call waits for ever: each has
// a deadline, and a lost peer, a late peer and a disagreement are three different errors that name
// the ranks, the call and its number. Results are bitwise equal on all members.
#pragma once

#include <memory>
#include <string>

#include "comm/clock.h"
#include "comm/dtype.h"
#include "comm/group.h"
#include "comm/options.h"
#include "comm/request.h"
#include "comm/shared_buffer.h"
#include "comm/view.h"

namespace motley {

class ControlClient;
class Engine;
class Store;
class Topology;
class Transport;

struct CallOptions {
  const Group* group = nullptr;  // all ranks, if null; must outlive the request
  Duration timeout{};            // Options::timeout, if zero
  std::string algorithm;         // Options::algorithm, if empty; the same on all members
};

class Communicator {
 public:
  // Joins the job that `options` describes: finds the other ranks through the controller and
  // connects. Returns when all `options.size` ranks have joined. With size 1 no controller is
  // needed. Throws kTimeout, naming the ranks still missing; kUnavailable if this build lacks the
  // transport.
  static Communicator join(const Options& options);
  // A seat on a transport made elsewhere (threads, simulator), with or without a controller.
  // `transport` knows rank and size. See also local.h.
  Communicator(std::unique_ptr<Transport> transport, Clock& clock, const Options& options);
  Communicator(std::unique_ptr<Transport> transport, std::unique_ptr<ControlClient> control,
               Clock& clock, const Options& options);
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();  // cancels what is unfinished

  int rank() const noexcept;  // in [0, size())
  int size() const noexcept;
  const Options& options() const noexcept;
  Clock& clock() const noexcept;
  const Group& world() const noexcept;
  // The connection to the controller; null where there is none (size 1, tests on bare transports).
  ControlClient* control() const noexcept;
  Engine& engine() const noexcept;
  // Hosts and links of all ranks, by which algorithms are chosen. join() finds it as
  // Options::topology says; else all links are alike.
  const Topology& topology() const noexcept;
  // Replaces it: every rank gives an equal one, while no call is under way. Throws kInvalid if it
  // describes another number of ranks.
  void use_topology(Topology topology);

  // data[i] becomes op over all members of data[i].
  //   data    [n]; same n and dtype on every member; host memory
  //   cost    about 2(p-1)/p * n elements sent per rank; Options::algorithm or the cheapest chosen
  //   errors  kMismatch if members disagree on n, dtype or op; kTimeout; kPeerLost
  [[nodiscard]] Request all_reduce(View data, ReduceOp op, const CallOptions& = {});
  // The same out of place: out [n] is overwritten, in [n] is left as it was. They must not overlap.
  [[nodiscard]] Request all_reduce(ConstView in, View out, ReduceOp op, const CallOptions& = {});
  // Block i of `out` becomes this rank's block of the `in` of member i: blocks are numbered by
  // position in the group.
  //   in, out  [p * n]; same n and dtype on every member; the same memory, or without overlap
  //   cost     n elements sent to each member; more in fewer messages where that is cheaper
  //   errors   kInvalid if p does not divide the count; kMismatch; kTimeout; kPeerLost
  [[nodiscard]] Request all_to_all(ConstView in, View out, const CallOptions& = {});
  // data [n] of `root`, a rank of the communicator, is copied to all members. log2(p) rounds.
  [[nodiscard]] Request broadcast(View data, int root, const CallOptions& = {});
  // Completes when every member has called it. log2(p) rounds of empty messages.
  [[nodiscard]] Request barrier(const CallOptions& = {});

  // `bytes` of zeros that all ranks of this host can reach: collectives work on such buffers where
  // they lie, without copies. Memory of this process alone where the transport shares none.
  //   errors  kUnavailable where there is no room, with the numbers
  [[nodiscard]] SharedBuffer allocate(std::size_t bytes);

  // Declares `rank` dead, from any thread: its calls fail at once with kPeerLost and `why`.
  void report_lost(int rank, const std::string& why) noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace motley
