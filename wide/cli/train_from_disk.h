// wide/cli/train_from_disk.h: motley-wide train --disk.
#pragma once

#include "comm/clock.h"
#include "wide/cli/train_flags.h"
#include "wide/trainer.h"

namespace motley::wide {

bool from_disk_by_flag();
// Throws UsageError for flags that exclude each other.
void check_disk_flags();

// Trains on `files`, kept in a folder beside the output meanwhile; prints the outcome.
void train_from_disk(Clock& clock, const TrainFiles& files, const TrainOptions& options);

}  // namespace motley::wide
