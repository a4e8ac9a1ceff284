// comm/executor/group_average.h: the data half of partial-reduce: one group averages, with weights.
#pragma once

#include <cstddef>
#include <vector>

#include "comm/clock.h"
#include "comm/communicator.h"
#include "comm/group.h"
#include "comm/request.h"
#include "comm/view.h"

namespace motley {

// What a group was told to do.
struct AveragePlan {
  std::vector<double> weights;  // by member; 0: takes the average, and gives nothing to it
  bool damped = false;          // see Weighting
  bool deterministic = false;   // see CallOptions
  // A sum of what they have may be no number: it is weighed before it is added.
  bool large = false;

  // All give alike: the group makes a plain average, of the same bits as all_reduce's.
  bool is_uniform() const noexcept;
};

// Starts the average of what the members of `group` have; not for damped weights. `average` is
// where it goes, on the host; they do not overlap. All but `own`, `plan` too, outlive the request.
Request begin_average(Communicator& comm, const Group& group, const AveragePlan& plan,
                      ConstView own, View average, Duration timeout);

// Of a plan that is `large`, afterwards: what rounding made infinite is the largest number. Not of
// integers.
void bound(View average) noexcept;

// Keeps the memory that it needs for the next group.
class GroupAverage {
 public:
  explicit GroupAverage(Communicator& comm) : comm_(comm) {}

  // `average` becomes the average of what the members of `group` have, `own` being this one's.
  // Host memory; they do not overlap. `deadline` is of the call on each member.
  //   cost    2(P-1)/P * n elements sent; damped: n more elements of memory, and as many copied
  //   errors  as all_reduce; kInvalid for weights of integers
  void operator()(const Group& group, const AveragePlan& plan, ConstView own, View average,
                  TimePoint deadline);

 private:
  void damped_average(const Group& group, const AveragePlan& plan, ConstView own, View average,
                      TimePoint deadline);

  Communicator& comm_;
  std::vector<std::byte> slices_;    // of all members, of what this one combines
  std::vector<std::byte> combined_;  // for each member
};

}  // namespace motley
