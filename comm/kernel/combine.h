// comm/kernel/combine.h: reductions of several buffers at once, and copies around the caches.
//
// The same loop is compiled for each width of vectors that processors have; which one is taken
// shows at run time. All give the same bits.
#pragma once

#include <cstddef>
#include <span>

#include "comm/device.h"
#include "comm/dtype.h"
#include "comm/view.h"

namespace motley {

// Sources that are combined at once; more are combined in turns.
inline constexpr std::size_t kMaxCombined = 64;

// What is combined.
struct Terms {
  const std::byte* const* sources;
  int count;                        // of sources
  bool average = false;             // divide by `count` in the end
  const double* weights = nullptr;  // kWeightedSum: what each source is multiplied by
};

// Does elements [0, k) of a Combine, and returns k.
using CombinePart = std::size_t (*)(std::byte* out, const Terms& terms, std::size_t n) noexcept;

// out[i] = sources[0][i] op sources[1][i] op …, from left to right, for `n` elements; kAverage
// divides by `count`, the number of sources, which is at least 1; kWeightedSum, of floats only,
// adds products with `weights`, one for each source, rounded to the type in which it adds. 16-bit
// floats are combined in float and rounded once. `out` may be one of the sources; otherwise they do
// not overlap. Any alignment.
class Combine {
 public:
  Combine(DType dtype, ReduceOp op) noexcept;
  void operator()(std::byte* out, const std::byte* const* sources, int count, std::size_t n,
                  const double* weights = nullptr) const noexcept;

 private:
  static constexpr std::size_t kLeastVector = 16;  // bytes: less fills no vector

  CombinePart vectors_;
  CombinePart rest_;  // all elements, one by one
  std::size_t element_bytes_;
  bool average_;
};

// The same on device memory, in stream order, bit for bit but for the payload of NaN: `in` are the
// sources, at most kMaxCombined, as long as `out`, of its dtype, at multiples of its elements'
// size.
void combine_on_device(View out, std::span<const ConstView> in, ReduceOp op, StreamRef stream);
void weighted_sum_on_device(View out, std::span<const ConstView> in,
                            std::span<const double> weights, StreamRef stream);

// The loops for vectors of 64 and 32 bytes; null where the processor has none.
CombinePart combine_512(DType dtype, ReduceOp op) noexcept;
CombinePart combine_256(DType dtype, ReduceOp op) noexcept;

// As memcpy, but `to` is neither read first nor kept in the caches: for memory that another core
// reads next, or nobody soon. Call streams_done() before telling that core.
void copy_stream(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;
void streams_done() noexcept;

}  // namespace motley
