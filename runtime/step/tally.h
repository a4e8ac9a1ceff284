// runtime/step/tally.h: what micro-batches leave beside gradients: their losses, and the values
// that they have changed, such as running means; and how those of all workers become one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "comm/request.h"
#include "runtime/state.h"

namespace motley::runtime {

class Tally {
 public:
  // `running`: values of floating types. Throws kInvalid, naming it, for another item.
  explicit Tally(const State& running);

  // Of a step in which this worker has so many rows; as many on each worker.
  void begin(int rows);
  // Of a micro-batch that is `weight` of the global batch. Takes the running values, and puts back
  // those of the step's beginning.
  void add(int row, double loss, double weight);
  // Puts back the running values of the step's beginning.
  void restore() const;

  // Begins to gather what all have; `vote` with it.
  Request gather(Communicator& comm, bool vote, const CallOptions& options);
  // Once that has come, the same on all workers: sums are made in the order of rows, row j of
  // worker r being the (j * workers + r)th. Sets the running values, and returns the loss.
  double finish();
  bool any_vote() const noexcept { return any_vote_; }

 private:
  double* row(std::vector<double>& rows, std::size_t i) const { return rows.data() + i * columns_; }

  State running_;
  std::size_t columns_;        // the vote, the loss, the running values
  std::vector<double> begun_;  // the running values of the step's beginning
  std::vector<double> own_;    // [rows][columns_]
  std::vector<double> all_;    // [workers][rows][columns_]
  std::size_t rows_ = 0;
  bool any_vote_ = false;
};

}  // namespace motley::runtime
