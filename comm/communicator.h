// comm/communicator.h: one rank's seat among the ranks of a job. Start here.
//
//   Communicator comm = Communicator::join(Options::from_environment());
//   comm.all_reduce(gradients, ReduceOp::kSum).wait();
//
// Every member of a group makes the same calls on it in the same order. Several threads may use a
// communicator at once, but one at a time each group and the messages to, and from, each rank;
// requests may be waited for from any. No call waits for ever: each has a deadline, and a lost
// peer, a late peer and a disagreement are three different errors that name the ranks, the call and
// its number. Results are bitwise equal on all members.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "comm/clock.h"
#include "comm/device.h"
#include "comm/dtype.h"
#include "comm/group.h"
#include "comm/options.h"
#include "comm/recorder.h"
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
  // The same bits for the same inputs and group on every transport, however long the buffer is and
  // whatever arrives first: terms are added in the order of members, those of 16-bit floats in
  // float32. Of use to all_reduce, reduce_scatter and reduce; the same on all members.
  bool deterministic = false;
  double weight = 1;  // of this rank's input in a ReduceOp::kWeightedSum
  // Of buffers in device memory: the call comes after what is in it so far. A stream of the current
  // device; null: its default stream.
  StreamRef stream{};
};

// Blocks of different sizes, one after another: block i has counts[i] elements of `data`. The
// counts are copied by the call.
struct ConstBlocks {
  ConstView data;
  std::span<const std::size_t> counts;
};
struct Blocks {
  View data;
  std::span<const std::size_t> counts;
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
  // Cancels what is unfinished, and leaves in good order; unless an exception unwinds it: then this
  // rank is dead to the others, at once.
  ~Communicator();

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
  // Lets NCCL run collectives of device memory, as README.md says. Every rank calls it, with the
  // device current that its buffers will lie on, one that no other rank has, while no call is under
  // way; join() does so where Options::nccl asks for it.
  //   errors  kUnavailable, if a rank has no NCCL, driver or device; kTimeout; kPeerLost
  void use_nccl();

  // --- Collectives ------------------------------------------------------------------------------
  // In all of them:
  //   p         members of the group; blocks are numbered by position in it
  //   root, to, from: ranks of the communicator
  //   in, out   memory of one dtype, the same on every member; zero elements are fine. They do not
  //             overlap, but for calls in place as each call says. `in` is left as it was.
  //             Touched until the request has completed or failed, and not after.
  //             In host memory, or in that of a device; if `in` or `out` is so on one member, then
  //             on each, though it be empty. What is in CallOptions::stream comes first; when the
  //             request is complete, work in any stream sees the result: the bits that the
  //             algorithm gives in host memory.
  //   cost      elements that a rank sends, with the cheapest algorithm for long buffers; README.md
  //             lists all
  //   errors    kInvalid, at once, for what this rank alone can see is wrong; kMismatch where
  //             members disagree on the call, a count, dtype, op, root or algorithm; kTimeout;
  //             kPeerLost; kUnavailable for device memory where there is no device

  // out[i] becomes op over all members of in[i].
  //   in, out  [n]; in place: the same memory     cost  about 2(p-1)/p * n
  [[nodiscard]] Request all_reduce(ConstView in, View out, ReduceOp op, const CallOptions& = {});
  [[nodiscard]] Request all_reduce(View data, ReduceOp op, const CallOptions& = {});
  // The same on member `root` alone. Others may leave `out` empty: it is not looked at.
  //   in, out  [n]; in place: the same memory     cost  about n
  [[nodiscard]] Request reduce(ConstView in, View out, ReduceOp op, int root,
                               const CallOptions& = {});
  // out[i] becomes op over all members of element i of this rank's block of theirs.
  //   in [p * n], out [n]; in place: `out` is this rank's block of `in`     cost  (p-1) n
  [[nodiscard]] Request reduce_scatter(ConstView in, View out, ReduceOp op,
                                       const CallOptions& = {});

  // Block i of `out` becomes the `in` of member i.
  //   in [n], out [p * n]; in place: `in` is this rank's block of `out`     cost  (p-1) n
  [[nodiscard]] Request all_gather(ConstView in, View out, const CallOptions& = {});
  // The same with blocks of out.counts elements: the same counts on every member.
  [[nodiscard]] Request all_gather_v(ConstView in, const Blocks& out, const CallOptions& = {});
  // The same on member `root` alone. Others may leave `out` empty: it is not looked at.
  [[nodiscard]] Request gather(ConstView in, View out, int root, const CallOptions& = {});
  // `out` becomes this rank's block of the `in` of `root`; others may leave `in` empty.
  //   in [p * n], out [n]; in place at the root: `out` is its block of `in`
  [[nodiscard]] Request scatter(ConstView in, View out, int root, const CallOptions& = {});
  // data [n] of `root` is copied to all members.
  [[nodiscard]] Request broadcast(View data, int root, const CallOptions& = {});

  // Block i of `out` becomes this rank's block of the `in` of member i.
  //   in, out [p * n]; in place: the same memory     cost  (p-1) n
  [[nodiscard]] Request all_to_all(ConstView in, View out, const CallOptions& = {});
  // The same with blocks of different sizes: what this rank sends member i must be what that
  // expects from this rank. In place: the same memory and counts.
  [[nodiscard]] Request all_to_all_v(const ConstBlocks& in, const Blocks& out,
                                     const CallOptions& = {});

  // Completes when every member has called it. log2(p) rounds of empty messages.
  [[nodiscard]] Request barrier(const CallOptions& = {});

  // Between two different ranks; CallOptions::group must be null. The k-th send to a rank belongs
  // to its k-th receive from here, of the same count and dtype, whatever else is under way. A send
  // may complete before the receive is called: a mismatch then fails its rank's next call with it.
  [[nodiscard]] Request send(ConstView data, int to, const CallOptions& = {});
  [[nodiscard]] Request recv(View data, int from, const CallOptions& = {});

  // `bytes` of zeros that all ranks of this host can reach: collectives work on such buffers where
  // they lie, without copies. Memory of this process alone where the transport shares none.
  //   errors  kUnavailable where there is no room, with the numbers
  [[nodiscard]] SharedBuffer allocate(std::size_t bytes);

  // The last calls of this rank; any thread may read it.
  const Recorder& recorder() const noexcept;
  // What this rank is doing, its latest calls, and where the others are, over several lines; any
  // thread. Waits for the controller's answer, at most `patience`.
  std::string status(Duration patience = std::chrono::milliseconds(500)) const;
  // Messages refused so far, because their sender does not hold the job's token; any thread.
  std::uint64_t refused() const noexcept;

  // Declares `rank` dead, from any thread: its calls fail at once with kPeerLost and `why`.
  void report_lost(int rank, const std::string& why) noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace motley
