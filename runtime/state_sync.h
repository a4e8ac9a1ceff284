// runtime/state_sync.h: averages all that a worker has (state.h) by a synchronizer, in one go:
// parameters, moments, running means and variances, step counters.
//
//   StateSync sync(comm, *synchronizer, state);
//   sync.begin();
//   for (std::int64_t step = 0; step < steps; ++step) {
//     train_locally();
//     sync.average(step);
//   }
//   sync.finish();
//
// Trainer::run(state, …) does this. All goes into one buffer and one average, so that a group
// commits all of it or nothing. Each item comes out by its policy:
//   kAverage  the mean, by the weights that the parameters get
//   of these, with StateItem::mean: the variance of the mixture, mean(v + m^2) - mean(m)^2
//   kMaximum  the largest among the members of the group, bit for bit
//   kSum, kKeepOwn  as they were
// How: a member writes the bits of its maxima, 16 at a time, into a slot of its own, in which the
// others have 0, and 1 into one more, which so shows its weight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "runtime/state.h"
#include "runtime/synchronizer.h"

namespace motley::runtime {

class StateSync {
 public:
  // Items in host memory, listed alike on all workers (check_alike() in state_exchange.h).
  // Throws kInvalid for a synchronizer that exchanges changes (Synchronizer::mixes()), and for a
  // variance whose mean is not listed with its shape and dtype.
  StateSync(Communicator& comm, Synchronizer& synchronizer, const State& state);

  // As those of Synchronizer. The buffer has the elements of all averaged items, in double if one
  // of them is double, else in float; and N * (1 + 4 * the elements of all maxima) more. If one
  // throws, the state is as it was.
  void begin();
  SyncReport average(std::int64_t step);
  SyncReport finish();

  // The buffer, as Synchronizer sees it.
  View buffer() noexcept;

 private:
  void pack();
  void unpack(const SyncReport& report);
  void pack_maxima();
  void unpack_maxima();
  // Calls body(item, view of its elements in the buffer) for the averaged ones.
  template <class Body>
  void for_each_mean(Body body);

  Communicator& comm_;
  Synchronizer& synchronizer_;
  State state_;
  DType dtype_;
  std::size_t means_ = 0;   // elements of averaged items
  std::size_t digits_ = 0;  // of a member's maxima, 16 bits each
  std::vector<std::byte> bytes_;
};

}  // namespace motley::runtime
