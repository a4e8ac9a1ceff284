// wide/cli/train_sharded.h: motley-wide train --shard.
#pragma once

#include <optional>
#include <string>

#include "comm/communicator.h"
#include "wide/trainer.h"

namespace motley::wide {

// What the flags say of shards, where there are any.
bool shards_by_flag();
// Throws UsageError for flags that exclude each other. Sets what is otherwise for sharded training.
void settle_shard_flags(TrainOptions& options);

// Trains, saves to `output` and prints the outcome, on the first worker that lives.
void train_sharded(Communicator& comm, Dataset train, std::optional<Dataset> valid,
                   const TrainOptions& options, const std::string& output);

}  // namespace motley::wide
