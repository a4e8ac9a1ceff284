// wide/shard/own_pace.h: sharded training in which each worker makes steps at its own pace, on the
// rows that it holds, over and over: the faster it is the more of an epoch's rows are its own.
//
// Gradients go to the keepers of shards (shard_service.h), which step by each worker's when it
// comes. Hot slots are averaged, state and gradients, with the workers that are ready
// (comm/partial_reduce.h), and stepped by the mean gradient times the number of workers: so with
// all workers in the group they do what they would in lockstep.
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

  // All workers call it, with the number of their next step: no row of the next epoch has been
  // handed out.
  void begin_epoch(std::int64_t number);
  struct Made {
    std::size_t rows = 0;
    double loss = 0;  // their sum
  };
  // This worker's step of that number; nothing where no rows of the epoch are left. A loss that is
  // not finite counts nowhere.
  std::optional<Made> step(std::int64_t number);
  // All workers call them, between steps: then all that was pushed is applied, and hot slots are
  // the mean of all workers' and bitwise equal; and steps, of which `number` is the next, can be
  // made again: of the first nobody averages alone while others are to come.
  void pause();
  void resume(std::int64_t number);
  // After the last pause(); all workers call it.
  void close() { service_.close(); }

  std::uint64_t slots_asked() const noexcept { return slots_asked_; }
  std::uint64_t left_out() const { return service_.left_out(); }
  ShardTraffic traffic() const;

 private:
  std::optional<Step> pulled();
  std::span<const std::uint64_t> next_rows();
  void average_hot(std::int64_t number);

  ShardWorker& worker_;
  const ShardRows& rows_;
  const TrainOptions& options_;
  const ShardOptions& shards_;
  ShardService service_;
  std::optional<PartialReducer> reducer_;
  std::vector<std::uint64_t> order_;  // of this worker's rows, in its own pass
  std::size_t at_ = 0;
  int passes_ = 0;     // begun
  bool over_ = false;  // the epoch has no rows left
  std::optional<Step> next_;
  std::vector<float> mixed_;  // state and gradients of hot slots
  std::uint64_t slots_asked_ = 0, bytes_hot_ = 0;
};

}  // namespace motley::wide
