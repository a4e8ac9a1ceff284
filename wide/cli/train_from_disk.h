// wide/cli/train_from_disk.h: motley-wide train --disk.
#pragma once

#include <string>

#include "comm/clock.h"
#include "wide/trainer.h"

namespace motley::wide {

bool from_disk_by_flag();
// Throws UsageError for flags that exclude each other.
void check_disk_flags();

// Trains on `files`, kept in a folder beside `output` meanwhile, saves to it, prints the outcome.
// `valid`: a file to validate by, or empty.
struct DiskFiles {
  std::string train, valid, output;
};
void train_from_disk(Clock& clock, const DiskFiles& files, const TrainOptions& options);

}  // namespace motley::wide
