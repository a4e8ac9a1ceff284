// comm/executor/lossy_average.h: a group averages in 16 or 8 bits, and nothing is lost for good.
//
// Each member sends its slices of what it has plus its remainder, shortened; what shortening left
// out is its new remainder, and goes into its next average. The owner of a slice averages what has
// come, and its own in full; gives all the same shortened average; and takes what that left out,
// once for each that gave, into its remainder. So with equal weights the sum of all models and
// remainders stays what it was, but for the rounding of float32: errors cannot drift. A remainder
// is never more than what the last average left out, (P + 1)/2 units of the short numbers.
//   x_i, r_i     the model and the remainder of member i;  y_i = x_i + r_i;  q_i = short(y_i)
//   at owner s   m = w_s y_s + sum w_j q_j;  o = short(m);  all: x_i' = o
//   remainders   r_i' = y_i - q_i;  the owner's, in its slice: r_s' = P (m - o)
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "comm/executor/group_average.h"
#include "comm/partial_reduce.h"
#include "comm/view.h"

namespace motley {

class LossyAverage {
 public:
  LossyAverage(Communicator& comm, Payload payload) : comm_(comm), payload_(payload) {}

  // `average` becomes, with the same bits on all members, the shortened average of what they have,
  // `own` being this one's, all finite if its weight is not 0. float32 in host memory; they do not
  // overlap. The remainder stays what it was until commit().
  //   cost    2(P-1)/P * n elements of 2 bytes, or of 1.03, sent; 3n more elements of memory
  //   errors  as all_to_all_v; kMismatch, too, for other lengths that take as many bytes
  void operator()(const Group& group, const AveragePlan& plan, ConstView own, View average,
                  TimePoint deadline);
  // The average of the last call was taken, by this member or by another that handed it on.
  void commit() { remainder_.swap(next_); }
  const std::vector<float>& remainder() const noexcept { return remainder_; }

 private:
  std::size_t packed_bytes(std::size_t n) const noexcept;
  void pack(std::byte* out, const float* values, std::size_t n) const;
  void unpack(float* values, const std::byte* in, std::size_t n) const;
  void check_counts(const Group& group, const std::vector<std::size_t>& all,
                    std::uint64_t count) const;
  void shorten(const float* own, const std::vector<std::size_t>& each, std::size_t me);
  void average_slice(const std::vector<std::size_t>& from, const AveragePlan& plan, std::size_t n,
                     std::size_t begin, std::size_t me);

  Communicator& comm_;
  Payload payload_;
  std::vector<float> remainder_;  // of what this rank has; empty before the first average
  std::vector<float> next_;       // after the average under way
  std::vector<float> whole_;      // model and remainder
  std::vector<float> restored_;   // from a shortened slice
  std::vector<double> sum_;       // of a slice
  std::vector<std::byte> sent_, received_, result_, results_;
};

}  // namespace motley
