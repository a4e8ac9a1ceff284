// wide/shard/own_pace.h: sharded training in which each worker makes steps at its own pace, on the
// rows that it holds, over and over: the faster it is the more of an epoch's rows are its own.
//
// Gradients go to the keepers of shards (shard_service.h), which step by each worker's when it
// comes. Hot slots are averaged, state and gradients, with the workers that are ready
// (comm/partial_reduce.h), and stepped by the mean gradient times the number of workers: so with
// all workers in the group they do what they would in lockstep.
//
// Where a worker dies its hot slots go, of which all others have their own, and go on from their
// mean; of the shards that it gave, others have copies.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/partial_reduce.h"
#include "wide/shard/shard_rows.h"
#include "wide/shard/shard_service.h"
#include "wide/shard/shard_worker.h"

namespace motley::wide {

class OwnPace {
 public:
  // All workers make one, in the same order as their other calls. The arguments must outlive it.
  OwnPace(ShardWorker& worker, const ShardRows& rows, const TrainOptions& options,
          const ShardOptions& shards);

  // Where all workers have paused, or have made no step: no row of the next epoch has been handed
  // out.
  void begin_epoch();
  struct Made {
    std::size_t rows = 0;
    double loss = 0;  // their sum
  };
  // This worker's step of that number; nothing where no rows of the epoch are left. The first one
  // after a pause is begun by all together, so that nobody averages alone while others are to come.
  // A loss that is not finite counts nowhere. Throws kPeerLost before a step, where a worker has
  // died that was not left out yet.
  std::optional<Made> step(std::int64_t number);
  // All that live call it, between steps: then all that was pushed is applied, copies are what they
  // are copies of, and hot slots are the mean of all workers' and bitwise equal.
  void pause();

  // Who is not in the worker's map any more is left out; then all that live pause(), hand over
  // shards and rows, and begin_anew(): the rows of the epoch that the dead have made are made
  // again.
  void leave_out_dead();
  void begin_anew();

  std::uint64_t slots_asked() const noexcept { return slots_asked_; }
  std::uint64_t left_out() const { return service_.left_out(); }
  ShardTraffic traffic() const;

 private:
  void resume(std::int64_t number);
  void leave_groups();
  std::optional<Step> pulled();
  std::optional<Step> pulled_or_none();
  std::vector<std::uint64_t> rows_of_pass(int pass) const;  // that are held here
  std::span<const std::uint64_t> next_rows();
  void average_hot(std::int64_t number);

  ShardWorker& worker_;
  const ShardRows& rows_;
  const TrainOptions& options_;
  const ShardOptions& shards_;
  ShardService service_;
  std::optional<PartialReducer> reducer_;  // between pauses
  std::vector<std::uint64_t> order_;       // of this worker's rows, in its own pass
  std::size_t at_ = 0;
  int passes_ = 0;           // begun
  std::uint64_t taken_ = 0;  // rows of the epoch, with those of next_
  bool over_ = false;        // the epoch has no rows left
  std::optional<Step> next_;
  std::vector<float> mixed_;  // state and gradients of hot slots
  std::uint64_t slots_asked_ = 0, bytes_hot_ = 0;
};

}  // namespace motley::wide
