// runtime/sharding.h: which samples a worker trains on, so that each is counted once an epoch.
//
// Workers in step (all_reduce) divide every global batch:
//
//   GlobalBatches batches(comm.rank(), comm.size(), {.samples = 60'000, .batch = 256, .seed = 7});
//   while (batches.epoch() < epochs) {
//     const GlobalBatches::Part part = batches.next();
//     train_on(part.samples, part.share);
//   }
//
// Workers of any speed (partial_reduce), which may come and go, take from one queue:
//
//   SampleQueue queue(comm, {.samples = 60'000, .seed = 7});
//   for (; queue.epoch() < epochs; queue.next_epoch()) {
//     for (auto samples = queue.next(64); !samples.empty(); samples = queue.next(64)) {
//       train_on(samples);
//       queue.count();
//     }
//   }
//
// The order of an epoch depends on its number and the seed alone. Both can be saved and gone on
// with on another number of workers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/clock.h"
#include "comm/communicator.h"
#include "runtime/state.h"

namespace motley::runtime {

struct GlobalBatchOptions {
  std::int64_t samples = 0;  // of an epoch, at least 1
  std::int64_t batch =
      0;  // of all workers together, at least 1; the last of an epoch may be shorter
  std::uint64_t seed = 0;
  // Above 0: each batch is cut into so many micro-batches, which the workers get in turn: worker r
  // of p those of r, r + p, and so on. Whatever is done with each is then the same on any number of
  // workers that divides this one (GradientTrainerOptions::micro_batches).
  int micro_batches = 0;
};

class GlobalBatches {
 public:
  // What this worker has of a global batch. Valid until the next call.
  struct Part {
    std::span<const std::int64_t>
        samples;             // may be empty, where there are more workers than samples
    std::int64_t batch = 0;  // samples of all workers
    double share = 0;  // samples.size() / batch: the weight of the mean gradient over `samples`
    // Of each of this worker's micro-batches, in the order of `samples`; of small batches some may
    // be 0. Without micro_batches one is all that it has, or there is none.
    std::span<const std::int64_t> sizes;
  };

  // Throws kInvalid for options that are not as said above, and naming both numbers where `size`
  // does not divide micro_batches.
  GlobalBatches(int rank, int size, const GlobalBatchOptions& options);

  Part next();
  // Of the batch that next() will give.
  std::int64_t epoch() const noexcept { return counted_ / options_.samples; }
  // Samples given to all workers so far, in all epochs.
  std::int64_t counted() const noexcept { return counted_; }
  // Adds "samples counted" and "order seed", by which a loaded state goes on at the next batch of
  // the order that was saved.
  void list(State& state);

 private:
  int rank_;
  int size_;
  GlobalBatchOptions options_;
  std::int64_t counted_ = 0;
  std::int64_t seed_;  // the bits of options_.seed, to be saved
  std::vector<std::int64_t> samples_;
  std::vector<std::int64_t> sizes_;
};

// Throws kInvalid, as `who`, unless `workers` divides micro_batches.
void check_micro_batches(const char* who, int micro_batches, int workers);

struct SampleQueueOptions {
  std::string name = "samples";  // of queues that are used at the same time
  std::int64_t samples = 0;      // of an epoch, at least 1; the same on all workers
  std::uint64_t seed = 0;        // likewise
  std::int64_t claim = 4096;     // taken from the controller at a time, at most
  Duration timeout{};            // of waits for others, at the end of an epoch; as in supply.h
};

class SampleQueue {
 public:
  // Throws kInvalid for options that are not as said above; else what Supply throws. `comm` must
  // outlive it.
  SampleQueue(Communicator& comm, const SampleQueueOptions& options);
  SampleQueue(SampleQueue&&) noexcept;
  ~SampleQueue();  // leaves

  // At most `most` samples of the epoch. Waits while others may still give some back; empty once
  // all of the epoch are counted. Valid until the next call. Throws kInvalid before the last are
  // counted; else what Supply::next() throws.
  std::span<const std::int64_t> next(std::int64_t most);
  // The samples of the last next() have been trained on.
  void count();
  // Those of the last next(), if not counted, and all else that this worker has taken go to others.
  void leave();

  std::int64_t epoch() const noexcept;
  // Goes on with the next epoch; others may still be in this one. Throws kInvalid, naming both
  // numbers, while this worker has samples that are not counted.
  void next_epoch();

  // Adds the epoch, its order's seed and what of it is not counted, as save_position() brings up to
  // date and load_position() goes by.
  void list(State& state);
  // To be called by all members of `group` (null: all workers), to which all belong that still take
  // samples: two barriers, between which nobody counts any. Gives the same on each.
  void save_position(const Group* group = nullptr);
  // To be called by every worker, once what list() tells of has been loaded.
  void load_position();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace motley::runtime
