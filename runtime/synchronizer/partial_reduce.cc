// With the first that are ready: comm/partial_reduce.h.
//   cost    2(P-1)/P * n elements and two round trips to the controller; nobody waits for the
//           slowest
//   deaths  the others go on
// X. Miao et al., "Heterogeneity-aware distributed machine learning training via partial reduce",
// SIGMOD 2021.
#include "comm/partial_reduce.h"

#include <utility>

#include "runtime/synchronizer/final_average.h"
#include "runtime/synchronizer/methods.h"

namespace motley::runtime {
namespace {

PartialOptions partial_options(const SynchronizerOptions& options) {
  PartialOptions partial = options.partial;
  partial.group_size = options.group_size;
  partial.timeout = options.timeout;
  return partial;
}

class PartialReduce final : public Synchronizer {
 public:
  PartialReduce(Communicator& comm, const SynchronizerOptions& options)
      : size_(comm.size()),
        overlaps_(options.partial.piece_bytes > 0),
        announces_(options.announces),
        reducer_(comm, partial_options(options)),
        final_(comm, options.finish_timeout) {}
  const char* name() const noexcept override { return "partial_reduce"; }
  bool survives_loss() const noexcept override { return true; }
  bool mixes() const noexcept override { return true; }

  bool overlaps() const noexcept override { return overlaps_; }
  void begin_average(View parameters, std::int64_t step) override {
    reducer_.begin(parameters, step);
    begun_ = true;
  }
  void ready(std::size_t first, std::size_t count) override { reducer_.ready(first, count); }

  void announce(std::int64_t step) override {
    if (announces_) reducer_.announce(step);
  }
  SyncReport average(View parameters, std::int64_t step) override {
    const bool begun = std::exchange(begun_, false);
    PartialResult result = begun ? reducer_.finish() : reducer_.average(parameters, step);
    const bool alone = result.solo() && size_ > 1 && !result.controller_away;
    return {.group = std::move(result.group),
            .waiting = result.waiting,
            .averaging = result.averaging,
            .alone = alone};
  }
  SyncReport finish(View parameters) override {
    reducer_.leave();
    return final_.over_survivors(parameters);
  }

 private:
  int size_;
  bool overlaps_;
  bool announces_;
  bool begun_ = false;
  PartialReducer reducer_;
  FinalAverage final_;
};

}  // namespace

std::unique_ptr<Synchronizer> make_partial_reduce(Communicator& comm,
                                                  const SynchronizerOptions& options) {
  return std::make_unique<PartialReduce>(comm, options);
}

}  // namespace motley::runtime
