// runtime/gradient.h: what happens to gradients between the backward pass and the update.
//
//   GradientAccumulator accumulator(model.gradients());
//   for (const Batch& batch : micro_batches) {
//     model.zero_gradients();
//     backward(batch);                                        // the mean over the micro-batch
//     accumulator.add(model.gradients(), batch.size());
//   }
//   accumulator.mean(model.gradients());                      // the mean over all of them
//   const Clipped clipped = clip_by_global_norm({&gradients, 1}, 1.0);
//   if (clipped.finite) optimizer.update(…);
//
// Host memory. With several workers clip after the all-reduce: all then see the same norm.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/view.h"

namespace motley::runtime {

// True if no element is infinite or NaN. Any floating dtype.
bool all_finite(ConstView values);

struct Clipped {
  double norm = 0;      // of all gradients before; infinite or NaN where one of them is
  bool finite = true;   // if not, nothing was changed: leave the step out, and say so
  bool scaled = false;  // the norm was above max_norm, and is max_norm now
};

// Scales the gradients, as if the buckets were one vector, to a norm of at most max_norm. Squares
// are added in double, in the order of buckets, so that the result does not depend on where one
// bucket ends; a float32 vector does not overflow. Floating dtypes, which may differ.
// R. Pascanu, T. Mikolov, Y. Bengio, "On the difficulty of training recurrent neural networks",
// ICML 2013, algorithm 1. Throws kInvalid unless max_norm is above 0 and finite.
Clipped clip_by_global_norm(std::span<const View> buckets, double max_norm);

// The gradient of a large batch from those of micro-batches, whatever their sizes. 16-bit gradients
// are added in float32. Holds nothing between steps, so a checkpoint then needs nothing of it.
class GradientAccumulator {
 public:
  // For gradients like these; their values do not matter. Throws kInvalid unless floating.
  explicit GradientAccumulator(ConstView gradients);

  // Adds the mean gradient of `samples` samples. Throws kInvalid for another count or dtype than
  // those that it was made for, and unless samples is above 0.
  void add(ConstView gradients, std::int64_t samples);
  std::int64_t samples() const noexcept { return samples_; }
  // The mean gradient over all samples added, into `out` (of the count that it was made for; its
  // dtype, or float32 for 16-bit gradients); then starts anew. Throws kInvalid if none was added.
  void mean(View out);

 private:
  View sums() noexcept { return {sums_.data(), count_, sum_dtype_}; }

  std::size_t count_;
  DType dtype_;
  DType sum_dtype_;
  std::int64_t samples_ = 0;
  std::vector<std::byte> sums_;  // of gradients times samples
};

}  // namespace motley::runtime
