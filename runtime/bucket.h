// runtime/bucket.h: averages gradients over workers while the backward pass still computes others.
//
//   Buckets buckets(comm, parameters.gradients(), parameters.shapes(), {.bytes = 1 << 20});
//   model.backward(batch, [&](std::size_t first, std::size_t count) {  // last parameters first
//     buckets.ready(first, count);
//   });
//   buckets.wait();  // all gradients are those of the global batch, on every worker
//
// Neighbouring parameters are averaged together, some bytes at a time, where their gradients lie:
// nothing is copied. Buckets start in one order on every worker, from the end of the buffer to its
// beginning, each as soon as it and those before it are complete; they make progress on the
// communicator's own thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/clock.h"
#include "comm/communicator.h"
#include "comm/request.h"
#include "comm/view.h"
#include "runtime/parameter.h"

namespace motley::runtime {

struct BucketOptions {
  std::size_t bytes = 1 << 20;  // least size of a bucket; the last, at the buffer's beginning, is
                                // what is left
  Duration timeout{};           // of each average, Options::timeout if zero
  bool deterministic = false;   // as in CallOptions
};

// When what happened to a bucket, since the first gradient of the step was ready.
struct BucketTimes {
  std::size_t first = 0;  // element
  std::size_t count = 0;
  Duration begun{};  // its average began: it and those before it were complete
  Duration done{};   // the average was there
};

class Buckets {
 public:
  // gradients [n] in host or device memory; `shapes` say where it may be cut. `comm` must outlive
  // this. Throws kInvalid if the shapes are not those of `gradients`.
  Buckets(Communicator& comm, View gradients, const std::vector<Shape>& shapes,
          const BucketOptions& options);

  // Before the first ready() of a step: the weight of this worker's gradients in the sum, such as
  // its share of the samples. Without it all weigh alike.
  void begin(double share);
  // Elements [first, first + count), one shape or several whole ones, are complete; each once a
  // step. Throws kInvalid for others, and for what was ready already; else what all_reduce throws.
  void ready(std::size_t first, std::size_t count);
  // Waits until all are averaged: the step's end. Throws kInvalid, naming the elements, if some
  // were never ready; else what Request::wait() throws. Whatever it throws, the step is over.
  void wait();
  // Gives the step up: nothing of it is touched any more. The other workers time out.
  void cancel() noexcept { reset(); }

  // Of the last step, in the order in which they began.
  const std::vector<BucketTimes>& times() const noexcept { return times_; }
  int count() const noexcept { return static_cast<int>(buckets_.size()); }

 private:
  struct Bucket {
    std::size_t first;
    std::size_t count;
    std::size_t missing;  // elements that are not ready
    Request request;
    std::uint32_t call = 0;  // number of its average
  };

  void start_complete();
  void note_times();
  void reset() noexcept;

  Communicator& comm_;
  View gradients_;
  BucketOptions options_;
  std::vector<Bucket> buckets_;      // from the buffer's end to its beginning
  std::size_t started_ = 0;          // so many of them
  std::vector<std::size_t> firsts_;  // element where each shape begins, and the end
  std::vector<bool> is_ready_;       // by shape
  double share_ = -1;                // below 0: all weigh alike
  TimePoint start_{};                // of the step; TimePoint{} before it
  std::vector<BucketTimes> times_;
};

}  // namespace motley::runtime
