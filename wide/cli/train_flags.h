// wide/cli/train_flags.h: the flags of train, and what is refused of them before data is read.
#pragma once

#include <gflags/gflags_declare.h>

#include <string>
#include <vector>

#include "wide/trainer.h"

DECLARE_string(validate);
DECLARE_string(sync);
DECLARE_int32(group_size);
DECLARE_string(initial_model);
DECLARE_double(holdout);
DECLARE_int32(folds);
DECLARE_bool(online);
DECLARE_uint64(online_rows);
DECLARE_string(report);

namespace motley::wide {

// What train reads and writes.
struct TrainFiles {
  std::string train;   // FILE, or FILE,FILE…
  std::string valid;   // or empty
  std::string output;  // the model
};
// Of the arguments and flags. Throws UsageError for what excludes each other or is out of range,
// and Error (kIo) for what could not be written.
TrainFiles train_files(const std::vector<std::string>& arguments);
// Of worker `rank` of `size`.
TrainOptions train_options(int rank, int size);
// Flags must not say other than the initial model does.
void check_initial(const Model& model);

}  // namespace motley::wide
