#include "wide/cli/train_from_disk.h"

#include <fmt/format.h>
#include <gflags/gflags.h>

#include <optional>
#include <utility>

#include "wide/cli/command_line.h"
#include "wide/cli/flags.h"
#include "wide/cli/progress.h"
#include "wide/disk_run.h"

DEFINE_bool(disk, false, "train from disk, on data larger than memory");
DEFINE_uint64(disk_rows, 100'000, "rows read at a time");
DECLARE_double(prior);
DECLARE_double(average);
DECLARE_double(positive_weight);
DECLARE_double(negative_rate);
DECLARE_string(device);

namespace motley::wide {

bool from_disk_by_flag() { return FLAGS_disk; }

void check_disk_flags() {
  if (FLAGS_disk_rows < 1) throw UsageError("--disk_rows is 0, but must be at least 1");
  if (!FLAGS_initial_model.empty() || !FLAGS_report.empty() || FLAGS_holdout > 0 ||
      FLAGS_positive_weight != 1 || FLAGS_negative_rate != 1 || FLAGS_device != "cpu" ||
      FLAGS_prior > 0 || FLAGS_average > 0) {
    throw UsageError(
        "--disk takes none of --initial_model, --report, --holdout, --positive_weight, "
        "--negative_rate, --device, --prior and --average");
  }
}

void train_from_disk(Clock& clock, const TrainFiles& files, const TrainOptions& options) {
  ReadOptions read = read_options(labels_for(options.model.loss));
  read.fields = has_fields(options.model.kind);
  DiskRows rows(split_files(files.train), files.output + ".parts",
                {.read = read, .rows_of_part = FLAGS_disk_rows, .seed = options.seed});
  std::optional<Dataset> valid;
  if (!files.valid.empty())
    valid = read_data(files.valid, alike(rows.recipe(), read), Weights::kNone);
  Progress progress(clock, FLAGS_quiet ? Progress::Mode::kOff : Progress::Mode::kIfTerminal);
  DiskRun run(std::move(rows), std::move(valid), options);
  while (run.next_step()) {
    progress.show({.epoch = run.epoch(),
                   .rows = run.rows_trained(),
                   .planned = run.rows_planned(),
                   .loss = run.running_loss()});
  }
  progress.clear();
  run.model().save(files.output);
  const EpochReport& best = run.reports()[static_cast<std::size_t>(run.best_epoch() - 1)];
  if (best.validation) {
    print_result(fmt::format("{} (epoch {} of {})", to_text(*best.validation, options.model.loss),
                             run.best_epoch(), run.reports().size()));
  } else {
    print_result(fmt::format("train loss {:.6f}", run.reports().back().train_loss));
  }
  if (FLAGS_quiet) return;
  print_result(fmt::format("{} features, saved to {}", run.model().layout().slots, files.output));
}

}  // namespace motley::wide
