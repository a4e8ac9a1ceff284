// comm/partial_reduce.h: average with whoever is ready, instead of waiting for everyone.
//
//   PartialReducer reducer(comm, {.group_size = 2});
//   for (std::int64_t step = 0; step < steps; ++step) {
//     train_locally(model);
//     reducer.average(model, step);        // instead of all_reduce(model, ReduceOp::kAverage)
//   }
//   reducer.leave();                       // the others go on without us
//
// Or, while the backward pass still computes the rest, with .piece_bytes = 1 << 20:
//
//     reducer.begin(model, step);
//     backward([&](std::size_t first, std::size_t count) {   // of the last layers first
//       update(first, count);
//       reducer.ready(first, count);
//     });
//     reducer.finish();
//
// Each worker steps locally and says that it is ready; the controller puts `group_size` workers
// that are ready into a group, which averages and goes on. Nobody waits for the slowest, and no
// workers stay among themselves: over every few rounds all hear of all.
// With uniform weights the mean of all models is kept; members of a group end bitwise equal (but
// not with Weighting::damped); non-members are untouched. An average of floats that are finite is,
// where their sum would not be, too: then they are weighed first, with other roundings. A member
// that dies in mid-reduce costs its group a retry with the survivors. A controller that dies costs
// the grouping until it is back.
//
// A rank of the communicator may be waited for from its first average(), or announcement of one, to
// leave(). Ranks that have not come to that yet are expected for two leases (Options::lease) after
// the first has; then groups are formed as if they were not there, until they come. Nobody can take
// the rank of one that died; ranks that kept away so far, or have left, can come in its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/clock.h"
#include "comm/device.h"
#include "comm/grouping.h"
#include "comm/view.h"
#include "comm/weights.h"

namespace motley {

class Communicator;

// What members send each other of models of float32. Short numbers carry what they leave out to the
// next average (executor/lossy_average.h), so that it is never lost: the sum of all models and of
// what the ranks so carry stays what it was. Members end bitwise equal, with a short number in each
// place; equal ones stay equal. What a rank carries goes when it joins, or ends.
enum class Payload : std::uint8_t {
  kExact,
  kBFloat16,  // half of the bytes
  kInt8,      // a quarter, and 3 % more for a scale of each 128 elements
};

// All but timeout and local_steps are the same on all ranks; grouping.h and weights.h say what they
// mean.
struct PartialOptions {
  int group_size = 2;   // workers averaged at a time, P; fewer when fewer are left. 0: adapted
  Duration timeout{};   // bound on one average(), 0 to 1e6 s; Options::timeout if zero
  Weighting weighting;  // uniform
  int largest_group = 0;
  double linger = 0.05;
  Guard guard = Guard::kBridge;
  Payload payload = Payload::kExact;  // the others: of float32, and not with Weighting::damped
  // CallOptions::deterministic of the average; with uniform weights and all ranks in the group its
  // bits are those of all_reduce(kAverage, {.deterministic = true}).
  bool deterministic = false;
  // An average that takes longer than most before it (group/patience.h) is given up and tried
  // again, but none sooner than after this, nor later than half of the time that average() has
  // left.
  Duration least_patience = seconds(1);
  // Above 0: a model is averaged in pieces of so many bytes, which can begin while others are still
  // computed (begin()). The same bits, if deterministic. The last piece is waited for with all of a
  // byte of each member. Damped weights and short numbers are averaged as a whole all the same.
  std::size_t piece_bytes = 0;
  // Without a controller, in a row; then average() waits for it. Each rank's own. A controller that
  // is started again or succeeded is away for about a second: that many steps cost no time. From 0.
  int local_steps = 40;
};

struct PartialResult {
  // The ranks averaged, ascending; if healed, those that have the average from the same donor, and
  // it. This rank is always in it.
  std::vector<int> group;
  std::vector<double> weights;  // what each counted; none if healed
  int attempts = 1;             // 1 + retries after members died
  Duration waiting{};           // from the call until the (last) group was known
  Duration averaging{};         // from there to the end
  // Steps that the average has in it; this rank's own were `staleness` fewer.
  std::int64_t version = 0;
  std::int64_t staleness = 0;
  // What this rank had held a NaN or an infinity: it counted nothing, and has the average of the
  // others now; unless solo(), where it is as bad as it was.
  bool was_not_finite = false;
  bool healed = false;           // a member that had it handed the average on
  bool controller_away = false;  // so this rank made its step alone
  bool solo() const noexcept { return group.size() == 1; }  // nobody was there to average with
};

class PartialReducer {
 public:
  // `comm` must outlive the reducer and needs a controller unless it has one rank.
  // Throws kInvalid, naming option, value and range, if group_size is neither 0 nor in [2,
  // comm.size()], largest_group neither 0 nor in [group_size, comm.size()] (with one rank, both are
  // ignored), or another option is out of its range.
  PartialReducer(Communicator& comm, const PartialOptions& options);
  PartialReducer(PartialReducer&&) noexcept;
  ~PartialReducer();  // leaves, if leave() was not called

  // Averages data [n] in place with the group that the controller chooses. Same n and dtype on
  // every rank. Returns as soon as this rank has the whole average. Members that could not complete
  // it, because another died, get it from one that could, at that one's next call; if none could,
  // they average again without the dead. So the living end alike. If this throws, data is
  // unchanged.
  //   data    in host memory, or in that of a device: then a pinned copy of it is averaged by the
  //           host, with the same bits, and copied back by the commit; members may differ in this
  //   step    this worker's count of local steps, never decreasing: its differences tell how stale
  //           a model is
  //   stream  of data in device memory: what is in it so far comes first. When the call has
  //           returned, work in any stream sees the average.
  //   cost    2(P-1)/P * n elements sent, as short as Payload says, one round trip to the
  //   controller; n elements of memory,
  //           2n of pinned memory for data on a device; data is read once more, for NaN
  //   errors  kTimeout (naming who was waited for), kMismatch (n, dtype, options): the reducer
  //           may be used again; kPeerLost (the controller is gone), kAborted (this rank was
  //           declared dead); kUnavailable for device memory where there is no device
  PartialResult average(View data, std::int64_t step, StreamRef stream = {});

  // This worker will call average() with `step` after `eta`, say at the end of its backward pass:
  // then its group may be known when it does, and the way to the controller and back costs nothing.
  // Without `eta`: after as long as it took of late; nothing is told while that is not known, or
  // varies by more than a seventh. Should it come later than its estimates usually err by, or not
  // at all, its group goes on without it, and it gets another. Does not wait.
  void announce(std::int64_t step, Duration eta = {});
  // It will not, after all.
  void cancel_announcement();

  // The same in pieces, from the end of `data` to its beginning (PartialOptions::piece_bytes).
  // begin() announces; ready() says that elements [first, first + count) will not change any more,
  // and starts what it can; finish() takes the rest as ready, and ends as average() does: `data` is
  // written there, and nowhere before. Groups are formed as much before the end of a step as pieces
  // take, of ranks whose steps end together; one that is late then is left out, as above, whatever
  // of its pieces was averaged. A member whose pieces turn out to hold no numbers counts nothing,
  // after another attempt. Neither begin() nor ready() waits.
  //   data    in host memory; the same until finish()
  //   errors  as average(); kInvalid for elements that there are not, or that were ready already
  void begin(View data, std::int64_t step, Duration eta = {});
  void ready(std::size_t first, std::size_t count);
  PartialResult finish();

  // The same for a worker that comes late, or comes back: what is in `data` counts nothing, and
  // becomes the average of the next group, which has this rank as an extra member; nobody waits for
  // it, nor for its first average() or announcement after that. `step` is its count of steps so
  // far. Optimizer state that shall come along is part of `data`. Not for integers.
  PartialResult join(View data, std::int64_t step, StreamRef stream = {});

  // This worker makes no more steps, once all of its last group have the average. Idempotent; the
  // others' groups shrink as needed.
  void leave();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace motley
