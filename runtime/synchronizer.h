// runtime/synchronizer.h: when and with whom a worker averages its model.
//
//   auto synchronizer = make_synchronizer("partial_reduce", comm, {.group_size = 2});
//   synchronizer->begin(model);    // the same on all workers
//   for (std::int64_t step = 0; step < steps; ++step) {
//     train_locally(model);
//     synchronizer->average(model, step);
//   }
//   synchronizer->finish(model);   // now all workers hold the same model
//
// All of them take and give models after local steps, so that they can be compared fairly and
// exchanged by name. Workers may make different numbers of steps. One thread; some methods have one
// of their own besides, which hears others while this worker computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/clock.h"
#include "comm/communicator.h"
#include "comm/partial_reduce.h"
#include "comm/view.h"

namespace motley::runtime {

// What one average was.
struct SyncReport {
  std::vector<int> group;  // the ranks averaged, ascending; this one among them
  Duration waiting{};      // from the call until all members were there
  Duration averaging{};    // from there to the end
  bool alone = false;      // partial_reduce, ad_psgd: nobody is left to average with
  bool dropped = false;    // backup_workers: this worker's step came too late and is lost
};

class Synchronizer {
 public:
  virtual ~Synchronizer() = default;
  virtual const char* name() const noexcept = 0;

  // Before the first step, once: the model that all workers start from, equal on all. Methods that
  // exchange what steps changed need it.
  virtual void begin(ConstView /*parameters*/) {}
  // Averages parameters [n] in place with other workers after local step `step`, which never
  // decreases. Same n and dtype on all workers. Throws what comm's calls throw.
  virtual SyncReport average(View parameters, std::int64_t step) = 0;
  // average() with `step` comes when a step is made that begins now, and takes about as long as
  // those before it. Does not wait.
  virtual void announce(std::int64_t /*step*/) {}
  // True if an average can begin before all of a step is computed, in pieces: partial_reduce with
  // PartialOptions::piece_bytes. Then begin_average() may come before average(), with the same
  // parameters and step; and ready() for elements that will not change any more, as
  // PartialReducer::begin() and ready() say.
  virtual bool overlaps() const noexcept { return false; }
  virtual void begin_average(View /*parameters*/, std::int64_t /*step*/) {}
  virtual void ready(std::size_t /*first*/, std::size_t /*count*/) {}
  // This worker makes no more steps: called once, by every worker. Waits until all have finished
  // and leaves in `parameters` the mean of the models of those that are still there, bitwise equal
  // on each of them ("none": does nothing; with a server: its model; all_reduce and local_sgd: that
  // of who made the most steps).
  virtual SyncReport finish(View parameters) = 0;
  // True if average() gives a weighted mean of what the members of the group passed, element by
  // element, and nothing else: then it can carry more than parameters (state_sync.h).
  virtual bool mixes() const noexcept { return false; }
  // True if the others go on when a worker dies.
  virtual bool survives_loss() const noexcept = 0;
};

struct SynchronizerOptions {
  int group_size = 2;      // partial_reduce, wait_avoiding: workers averaged at a time
  PartialOptions partial;  // partial_reduce: the rest, but for group_size and timeout
  bool announces = true;   // partial_reduce: announce() is passed on, which hides the controller
  int local_steps = 4;     // local_sgd: from one average to the next
  int backup = 1;          // backup_workers: so many are not waited for, fewer than all
  int staleness = 4;       // parameter_server: steps ahead of the slowest, at most
  int sync_rounds = 10;    // eager_solo, wait_avoiding: every so manieth round waits for all
  std::uint64_t seed = 1;  // of what ad_psgd, eager_majority and wait_avoiding draw; on all alike
  Duration timeout{};      // of one average(), Options::timeout if zero
  Duration finish_timeout = seconds(600);  // of finish(), in which the fast wait for the slow
};

// By name:
//   none              a worker on its own
//   all_reduce        everyone, every time: as fast as the slowest
//   local_sgd         everyone, every `local_steps` steps
//   partial_reduce    with the first that are ready (comm/partial_reduce.h)
//   ad_psgd           in pairs, at random, without waiting
//   backup_workers    with the first N - backup; the steps of later ones are lost
//   parameter_server  by a server on worker 0; nobody is more than `staleness` steps ahead
//   eager_solo        with what all have brought, as soon as one has come
//   eager_majority    the same, as soon as one that is drawn has come
//   wait_avoiding     in groups, drawn anew, as soon as one worker has come
// README.md says who waits, what a worker's death does, and where they come from. Throws kInvalid,
// listing the names, on any other, and for bad options. Counts as a call of all ranks: all make it,
// in the same order as their other calls. `comm` must outlive the synchronizer.
std::unique_ptr<Synchronizer> make_synchronizer(const std::string& name, Communicator& comm,
                                                const SynchronizerOptions& options);
std::vector<std::string> synchronizer_names();

}  // namespace motley::runtime
