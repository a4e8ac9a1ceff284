#include "wide/cli/train_sharded.h"

#include <fmt/format.h>
#include <gflags/gflags.h>

#include <utility>
#include <vector>

#include "wide/cache.h"
#include "wide/cli/command_line.h"
#include "wide/cli/flags.h"
#include "wide/cli/progress.h"
#include "wide/sharded_run.h"

DEFINE_bool(shard, false, "spread the features' weights over the workers");
DEFINE_uint64(shard_hot, 4096, "most frequent features, which every worker has");
DEFINE_int32(shard_copies, 2, "workers that keep each other feature");
DEFINE_int32(shard_staleness, 16, "by partial_reduce: steps that others may make meanwhile");
DEFINE_bool(shard_early, false, "take weights a step old, and never wait for them");
DECLARE_bool(cache);
DECLARE_string(weights);

namespace motley::wide {
namespace {

constexpr std::size_t kBatchRows = 8192;

ShardOptions shard_options() {
  if (FLAGS_shard_copies < 1) {
    throw UsageError(
        fmt::format("--shard_copies is {}, but must be at least 1", FLAGS_shard_copies));
  }
  check_flag("shard_staleness", FLAGS_shard_staleness >= 1, "at least 1");
  ShardOptions o;
  o.hot = FLAGS_shard_hot;
  o.copies = FLAGS_shard_copies;
  if (FLAGS_sync == "partial_reduce") {
    o.partial = PartialOptions{.group_size = FLAGS_group_size};
    o.staleness = FLAGS_shard_staleness;
  }
  o.pulls = FLAGS_shard_early ? Pulls::kOneStepOld : Pulls::kExact;
  return o;
}

void print_outcome(const ShardedRun& run, Loss loss, const std::string& output) {
  const EpochReport& last = run.reports().back();
  if (last.validation) {
    const auto best = static_cast<std::size_t>(run.best_epoch() - 1);
    print_result(fmt::format("{} (epoch {} of {})", to_text(*run.reports()[best].validation, loss),
                             run.best_epoch(), run.reports().size()));
  } else {
    print_result(fmt::format("train loss {:.6f}", last.train_loss));
  }
  if (FLAGS_quiet) return;
  print_result(fmt::format("{} features, saved to {}", run.features(), output));
}

}  // namespace

bool shards_by_flag() { return FLAGS_shard; }

void settle_shard_flags(TrainOptions& options) {
  if (FLAGS_sync != "all_reduce" && FLAGS_sync != "partial_reduce")
    throw UsageError("--shard takes --sync all_reduce or partial_reduce");
  if (options.processor != Processor::kCpu) throw UsageError("--shard trains on the CPU alone");
  if (!FLAGS_initial_model.empty() || !FLAGS_report.empty())
    throw UsageError("--shard takes neither --initial_model nor --report");
  if (options.batch_rows <= 1) options.batch_rows = kBatchRows;
  static_cast<void>(shard_options());
}

bool reads_parts(const TrainFiles& files) {
  const std::vector<std::string> paths = split_files(files.train);
  const bool as_text = !FLAGS_cache && !is_cache(paths[0]);
  return as_text && FLAGS_weights.empty() && FLAGS_holdout == 0 && can_be_read_in_parts(paths);
}

void train_sharded(Communicator& comm, const TrainFiles& files, const TrainOptions& options) {
  ReadOptions read = read_options(labels_for(options.model.loss));
  read.fields = has_fields(options.model.kind);
  RowParts train(split_files(files.train), read);
  std::optional<Dataset> valid;
  if (!files.valid.empty())
    valid = read_data(files.valid, alike(train.recipe(), read), Weights::kNone);
  train_sharded(comm, std::move(train), std::move(valid), options, files.output);
}

void train_sharded(Communicator& comm, RowParts train, std::optional<Dataset> valid,
                   const TrainOptions& options, const std::string& output) {
  Progress progress(comm.clock(), comm.rank() == 0 && !FLAGS_quiet ? Progress::Mode::kIfTerminal
                                                                   : Progress::Mode::kOff);
  ShardedRun run(comm, std::move(train), std::move(valid), options, shard_options());
  // Slow disks and large files: the first step must not take a rank that still reads for lost.
  if (comm.size() > 1) comm.barrier({.timeout = seconds(3600)}).wait();
  while (run.next_step()) {
    progress.show({.epoch = run.epoch(),
                   .rows = run.rows_trained(),
                   .planned = run.rows_planned(),
                   .workers = static_cast<int>(run.workers().size()),
                   .loss = run.running_loss()});
  }
  progress.clear();
  run.save(output);
  if (comm.rank() == run.workers().front()) print_outcome(run, options.model.loss, output);
}

}  // namespace motley::wide
