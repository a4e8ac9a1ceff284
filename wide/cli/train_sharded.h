// wide/cli/train_sharded.h: motley-wide train --shard.
#pragma once

#include <optional>
#include <string>

#include "comm/communicator.h"
#include "wide/cli/train_flags.h"
#include "wide/row_parts.h"
#include "wide/trainer.h"

namespace motley::wide {

// What the flags say of shards, where there are any.
bool shards_by_flag();
// Throws UsageError for flags that exclude each other. Sets what is otherwise for sharded training.
void settle_shard_flags(TrainOptions& options);

// Whether each worker can read its part of the training rows alone, as flags are.
bool reads_parts(const TrainFiles& files);
void train_sharded(Communicator& comm, const TrainFiles& files, const TrainOptions& options);
// Trains, saves to `output` and prints the outcome, on the first worker that lives.
void train_sharded(Communicator& comm, RowParts train, std::optional<Dataset> valid,
                   const TrainOptions& options, const std::string& output);

}  // namespace motley::wide
