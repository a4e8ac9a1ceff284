// wide/shard/shard_worker.h: what a worker of sharded training keeps, and how batches get weights.
#pragma once

#include <span>
#include <string>
#include <utility>

#include "wide/shard/batch_engine.h"
#include "wide/shard/exchange.h"
#include "wide/shard/start.h"

namespace motley::wide {

struct ShardWorker {
  // `shape`: what is so of all that will be trained on.
  ShardWorker(Communicator& comm, const Start& start, const Samples& shape,
              const TrainOptions& options, const ShardOptions& shards);

  std::size_t members() const noexcept { return map.alive().size(); }
  // This worker's part of rows that all members have.
  std::span<const std::uint64_t> share(std::span<const std::uint64_t> rows) const;

  // A batch, its keys, and the weights that come early.
  template <class IsLate>
  Step pulled(Samples rows, IsLate is_late) {
    Step step;
    step.batch = finder.find(std::move(rows));
    exchange.send_keys(step);
    exchange.send_early(step, shards, is_late);
    return step;
  }
  // And all others, as no step is under way.
  Step pulled_now(Samples rows) {
    return pulled(std::move(rows), [](std::uint64_t) { return false; });
  }
  // What members ask for in this step, they change in it.
  void note(const Step& step) {
    ++noted;
    for (const std::int32_t slot : step.heard) shards.note(static_cast<std::uint64_t>(slot), noted);
  }
  bool changes(std::uint64_t slot, std::uint32_t step) const { return shards.noted(slot) == step; }

  // Of all samples, each member scores a share of them: the same on all.
  std::vector<float> scores(const Samples& samples, std::size_t batch_rows);

  // Among those that live by now, which stand at the same step.
  void forget_notes() {
    shards.forget_notes();
    noted = 0;
  }

  Communicator& comm;
  ShardMap map;
  SlotRule rule;
  Shards shards;
  HotBlock hot;
  SlotFinder finder;
  Exchange exchange;
  BatchEngine engine;
  std::uint32_t noted = 0;  // the last step whose slots are
};

}  // namespace motley::wide
