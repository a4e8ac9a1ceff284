// motley-wide train. Started by motley-run, it runs data-parallel.
#include <fmt/format.h>
#include <gflags/gflags.h>
#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/error.h"
#include "comm/options.h"
#include "comm/status_signal.h"
#include "runtime/synchronizer.h"
#include "runtime/trainer.h"
#include "wide/cli/command_line.h"
#include "wide/cli/commands.h"
#include "wide/cli/flags.h"
#include "wide/cli/progress.h"
#include "wide/cli/train_flags.h"
#include "wide/cli/train_from_disk.h"
#include "wide/cli/train_sharded.h"
#include "wide/file/whole_file.h"
#include "wide/report.h"
#include "wide/trainer.h"

namespace motley::wide {
namespace {

void print_epoch(const EpochReport& report, Loss loss) {
  std::string line = fmt::format("epoch {:3}  train loss {:.6f}", report.epoch, report.train_loss);
  if (report.validation) line += "  validation " + to_text(*report.validation, loss);
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

// The environment's; warnings of the library and worse go to the log.
Options job_options() {
  Options options = Options::from_environment();
  options.log = [](LogLevel level, const std::string& text) {
    if (level == LogLevel::kError) {
      LOG(ERROR) << text;
    } else if (level == LogLevel::kWarning) {
      LOG(WARNING) << text;
    } else {
      VLOG(level == LogLevel::kInfo ? 1 : 2) << text;
    }
  };
  return options;
}

// What a run trains on and from.
struct Inputs {
  std::optional<Model> initial;
  Dataset train;
  std::optional<Dataset> valid;
  std::unordered_map<std::uint32_t, std::string> names;  // of hashed features, for the report
};

Inputs read_inputs(const TrainFiles& files, ModelKind kind, Loss loss) {
  Inputs in;
  if (!FLAGS_initial_model.empty()) {
    in.initial = Model::load(FLAGS_initial_model);
    check_initial(*in.initial);
    loss = in.initial->options().loss;
  }
  ReadOptions read = in.initial && !in.initial->recipe().empty()
                         ? read_options(*in.initial, labels_for(loss))
                         : read_options(labels_for(loss));
  read.names = !FLAGS_report.empty();
  read.fields = has_fields(in.initial ? in.initial->options().kind : kind);
  in.train = read_data(files.train, read);
  in.names = std::move(in.train.names);
  in.train.names.clear();
  if (!files.valid.empty()) {
    // By the columns of the training file, wherever they stand.
    in.valid = read_data(files.valid, alike(in.train.recipe, read), Weights::kNone);
    in.valid->names.clear();
  }
  if (FLAGS_holdout > 0) {
    const auto kept =
        static_cast<std::size_t>(static_cast<double>(in.train.rows()) * (1 - FLAGS_holdout));
    if (kept == 0) {
      throw UsageError(fmt::format("--holdout is {}, which leaves none of {} rows to train on",
                                   FLAGS_holdout, in.train.rows()));
    }
    std::vector<std::uint64_t> rows(in.train.rows());
    std::iota(rows.begin(), rows.end(), std::uint64_t{0});
    in.valid = rows_of(in.train, std::span(rows).subspan(kept));
    in.train = rows_of(in.train, std::span(rows).first(kept));
  }
  return in;
}

void write_report(const TrainingRun& run, const Inputs& in, const std::string& title) {
  if (FLAGS_report.empty()) return;
  ReportInput input{
      .title = title, .scores = {}, .labels = {}, .result = {}, .epochs = run.reports()};
  std::vector<float> scores;
  if (run.validation()) {
    scores = run.model().scores(*run.validation(), FLAGS_threads);
    input.scores = scores;
    input.labels = run.validation()->labels;
    input.result = *run.validate();
  }
  Dataset names;
  names.names = in.names;
  WholeFile file(FLAGS_report);
  file.put(report_html(run.model(), input, names));
  file.commit();
}

void cross_validate_and_print(const Inputs& in, const TrainOptions& options) {
  const std::vector<Evaluation> results = cross_validate(in.train, FLAGS_folds, options);
  double sum = 0;
  double squares = 0;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const double loss = options.model.loss == Loss::kSquared ? results[i].rmse : results[i].loss;
    sum += loss;
    squares += loss * loss;
    if (!FLAGS_quiet) {
      fmt::print("fold {:2}  {}\n", i + 1, to_text(results[i], options.model.loss));
    }
  }
  const auto n = static_cast<double>(results.size());
  const double mean = sum / n;
  print_result(
      fmt::format("{} {:.6f} mean of {} folds, {:.6f} standard deviation; no model is saved",
                  options.model.loss == Loss::kSquared    ? "RMSE"
                  : options.model.loss == Loss::kLogistic ? "log loss"
                                                          : "hinge loss",
                  mean, results.size(), std::sqrt(std::max(0.0, squares / n - mean * mean))));
}

// One pass over data of any size: each part is learnt row by row, in its order, and the model
// saved.
void train_online(const TrainFiles& files, TrainOptions options) {
  std::optional<Model> model;
  ReadOptions read = read_options(labels_for(options.model.loss));
  if (!FLAGS_initial_model.empty()) {
    model = Model::load(FLAGS_initial_model);
    check_initial(*model);
    read = read_options(*model, labels_for(model->options().loss));
  }
  read.fields = has_fields(model ? model->options().kind : options.model.kind);
  options.epochs = 1;
  options.shuffles = false;
  options.sync_rows = 0;
  options.prior_factors = 0;  // which would wear away what is rarely seen, part by part
  options.average = 0;
  RowStream stream(split_files(files.train), read);
  double loss = 0;
  double rows = 0;
  while (std::optional<Dataset> part = stream.next(FLAGS_online_rows)) {
    TrainingRun run = model ? TrainingRun(std::move(*part), std::nullopt, options, *model)
                            : TrainingRun(std::move(*part), std::nullopt, options);
    while (run.next_step()) {
    }
    const auto n = static_cast<double>(run.rows_trained());
    loss += n * run.reports().back().train_loss;
    rows += n;
    model = std::move(run.model());
    model->save(files.output);
    if (!FLAGS_quiet) {
      fmt::print(
          "{:.0f} rows  loss of these {:.6f}, of all {:.6f}, each before it was learnt; {} "
          "features\n",
          rows, run.reports().back().train_loss, loss / rows, model->layout().slots);
      std::fflush(stdout);
    }
  }
  if (rows == 0) throw Error(ErrorCode::kInvalid, files.train + ": holds no rows");
  print_result(fmt::format("progressive loss {:.6f} of {:.0f} rows, saved to {}", loss / rows, rows,
                           files.output));
}

void print_outcome(const TrainingRun& run, const std::string& output) {
  if (const auto result = run.validate()) {
    print_result(fmt::format("{} (epoch {} of {})", to_text(*result, run.model().options().loss),
                             run.best_epoch(), run.reports().size()));
  } else {
    print_result(fmt::format("train loss {:.6f}", run.reports().back().train_loss));
  }
  if (FLAGS_quiet) return;
  print_result(fmt::format("{} features, saved to {}", run.model().layout().slots, output));
}

}  // namespace

void train(const std::vector<std::string>& arguments) {
  const TrainFiles files = train_files(arguments);
  Communicator comm = Communicator::join(job_options());
  const StatusSignal status(comm, [](const std::string& text) { fmt::print(stderr, "{}", text); });
  const bool first = comm.rank() == 0;
  TrainOptions options = train_options(comm.rank(), comm.size());
  Progress progress(comm.clock(),
                    first && !FLAGS_quiet ? Progress::Mode::kIfTerminal : Progress::Mode::kOff);
  if (first && !FLAGS_quiet && !FLAGS_online && FLAGS_folds == 0) {
    options.on_epoch = [&progress, loss = options.model.loss](const EpochReport& report) {
      progress.clear();
      print_epoch(report, loss);
    };
  }
  if ((FLAGS_online || FLAGS_folds > 0 || from_disk_by_flag()) && comm.size() > 1) {
    throw UsageError("--online, --folds and --disk run on one worker");
  }
  if (FLAGS_online) return train_online(files, options);
  if (from_disk_by_flag()) {
    return train_from_disk(comm.clock(), files, options);
  }
  if (shards_by_flag() && reads_parts(files)) return train_sharded(comm, files, options);
  Inputs in = read_inputs(files, options.model.kind, options.model.loss);
  if (shards_by_flag()) {
    return train_sharded(comm, std::move(in.train), std::move(in.valid), options, files.output);
  }
  if (FLAGS_folds > 0) return cross_validate_and_print(in, options);
  TrainingRun run =
      in.initial ? TrainingRun(std::move(in.train), std::move(in.valid), options, *in.initial)
                 : TrainingRun(std::move(in.train), std::move(in.valid), options);
  // Slow disks and large files: the first average must not take a rank that still reads for lost.
  if (comm.size() > 1) comm.barrier({.timeout = seconds(3600)}).wait();
  const auto step = [&](std::int64_t) {
    if (!run.next_step()) return false;
    progress.show({.epoch = run.epoch(),
                   .rows = run.rows_trained(),
                   .planned = run.rows_planned(),
                   .workers = comm.size(),
                   .loss = run.running_loss()});
    return true;
  };
  const auto synchronizer = runtime::make_synchronizer(comm.size() > 1 ? FLAGS_sync : "none", comm,
                                                       {.group_size = FLAGS_group_size});
  runtime::Trainer trainer(comm, *synchronizer, {.slow = comm.options().slow});
  std::vector<int> finished;  // the workers that the final model is of
  trainer.on_round([&](const runtime::Round& round) { finished = round.group; });
  trainer.run(run.state(), step);
  progress.clear();
  if (comm.rank() != finished.front()) return;
  run.model().save(files.output);
  write_report(
      run, in,
      fmt::format("{} on {}", files.output, files.valid.empty() ? files.train : files.valid));
  print_outcome(run, files.output);
}

}  // namespace motley::wide
