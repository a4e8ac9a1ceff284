// wide/shard/start.h: what a sharded run begins with.
#pragma once

#include <utility>
#include <vector>

#include "wide/shard/shard_rows.h"
#include "wide/sharded_run.h"

namespace motley::wide {

struct Start {
  // Throws kInvalid if an option is out of range.
  Start(RowFacts facts, const TrainOptions& given, const ShardOptions& shards, bool validates);

  TrainOptions options;       // settled, for one worker, as all rows of a step are one batch
  Model model;                // without its state
  std::vector<float> shared;  // what all samples share
};

}  // namespace motley::wide
