// test/wide/service_seat.h: what a worker has below the service of its shards.
#pragma once

#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "wide/shard/shard_rows.h"
#include "wide/shard/shard_service.h"
#include "wide/shard/shard_worker.h"

namespace motley::wide::test {

class ServiceSeat {
 public:
  // All workers make one.
  ServiceSeat(Communicator& comm, const Dataset& data, const TrainOptions& options,
              const ShardOptions& shards)
      : rows_(comm, data, options),
        start_(rows_.take_facts(), options, shards, false),
        order_(rows_.rows()) {
    std::iota(order_.begin(), order_.end(), std::uint64_t{0});
    rows_.prepare(start_.model, order_, shards.copies);
    worker_.emplace(comm, start_, rows_.shape(), start_.options, shards);
  }

  ShardWorker& worker() { return *worker_; }
  // A step on the first rows that this worker holds.
  Step step(std::size_t rows) {
    std::vector<std::uint64_t> own = order_;
    std::erase_if(own, [this](std::uint64_t row) { return !rows_.holds(row); });
    Step step;
    step.batch = worker_->finder.find(rows_.held(std::span(own).first(rows)));
    return step;
  }

 private:
  ShardRows rows_;
  Start start_;
  std::vector<std::uint64_t> order_;
  std::optional<ShardWorker> worker_;
};

}  // namespace motley::wide::test
