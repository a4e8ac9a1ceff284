// runtime/synchronizer.h: when and with whom a worker averages its model.
//
//   auto synchronizer = make_synchronizer("partial_reduce", comm, {.group_size = 2});
//   for (std::int64_t step = 0; step < steps; ++step) {
//     train_locally(model);
//     synchronizer->average(model, step);
//   }
//   synchronizer->finish(model);   // now all workers hold the same model
//
// All of them average models after local steps, so that they can be compared fairly and exchanged
// by name. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/clock.h"
#include "comm/communicator.h"
#include "comm/view.h"

namespace motley::runtime {

// What one average was.
struct SyncReport {
  std::vector<int> group;  // the ranks averaged, ascending; this one among them
  Duration waiting{};      // from the call until all members were there
  Duration averaging{};    // from there to the end
  bool alone = false;      // partial_reduce: all others have finished or died
};

class Synchronizer {
 public:
  virtual ~Synchronizer() = default;
  virtual const char* name() const noexcept = 0;

  // Averages parameters [n] in place with other workers after local step `step`, which never
  // decreases. Same n and dtype on all workers. Throws what comm's calls throw.
  virtual SyncReport average(View parameters, std::int64_t step) = 0;
  // This worker makes no more steps: called once, by every worker. Waits until all have finished
  // and leaves in `parameters` the mean of the models of those that are still there, bitwise equal
  // on each of them ("none": does nothing).
  virtual SyncReport finish(View parameters) = 0;
  // True if the others go on when a worker dies.
  virtual bool survives_loss() const noexcept = 0;
};

struct SynchronizerOptions {
  int group_size = 2;                      // partial_reduce: workers averaged at a time
  Duration timeout{};                      // of one average(), Options::timeout if zero
  Duration finish_timeout = seconds(600);  // of finish(), in which the fast wait for the slow
};

// By name:
//   none            a worker on its own
//   all_reduce      everyone, every time: as fast as the slowest; all workers must make the same
//                   number of steps. A barrier comes first, so that waiting and averaging can be
//                   told apart; it costs log2(p) empty messages
//   partial_reduce  with the first that are ready (comm/partial_reduce.h); workers may make
//                   different numbers of steps
// Throws kInvalid, listing the names, on any other, and for bad options. `comm` must outlive the
// synchronizer.
std::unique_ptr<Synchronizer> make_synchronizer(const std::string& name, Communicator& comm,
                                                const SynchronizerOptions& options);

}  // namespace motley::runtime
