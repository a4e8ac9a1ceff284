// motley-wide train. Started by motley-run, it runs data-parallel.
#include <fmt/format.h>
#include <fmt/ranges.h>
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
#include "comm/device.h"
#include "comm/error.h"
#include "comm/options.h"
#include "comm/status_signal.h"
#include "runtime/synchronizer.h"
#include "runtime/trainer.h"
#include "wide/cli/command_line.h"
#include "wide/cli/commands.h"
#include "wide/cli/flags.h"
#include "wide/cli/progress.h"
#include "wide/cli/train_from_disk.h"
#include "wide/cli/train_sharded.h"
#include "wide/file/whole_file.h"
#include "wide/report.h"
#include "wide/trainer.h"

DEFINE_string(model, "fm", "lr, svm, fm, ffm or fwfm");
DEFINE_int32(k, 8, "factors");
DEFINE_string(loss, "", "logistic, squared, hinge or squared_hinge");
DEFINE_string(optimizer, "adagrad", "sgd, adagrad, ftrl or adam");
DEFINE_bool(deterministic, false, "the same bits on any number of threads");
DEFINE_string(device, "cpu", "cpu, or cuda: the current CUDA device trains");
DEFINE_int32(epochs, 0, "passes over the data, at most; 0: 100 with a validation file, else 20");
DEFINE_double(lr, -1, "learning rate; below 0: one that suits the model");
DEFINE_double(l1, 0, "L1 of linear weights");
DEFINE_double(l2, 2e-5, "L2 of linear weights");
DEFINE_double(l1_factors, 0, "L1 of factors");
DEFINE_double(lr_factors, -1, "learning rate of factors; below 0: that of --lr, or a good one");
DEFINE_double(prior, -1, "precision of the prior on factors; below 0: one that suits the model");
DEFINE_double(average, -1, "what an epoch counts in the average of states; below 0: by model");
DEFINE_double(l2_factors, -1, "L2 of factors; below 0: one that suits the model");
DEFINE_double(init_scale, -1, "size of the factors' initial values; below 0: the kind's own");
DEFINE_uint64(batch, 1, "rows per update");
DEFINE_uint64(seed, 1, "of initial values and shuffles");
DEFINE_bool(normalise, true, "divide each row by its norm");
DEFINE_string(validate, "", "file for the log loss after each epoch and the early stop");
DEFINE_int32(patience, 3, "epochs without a better validation loss before the early stop");
DEFINE_string(sync, "all_reduce", "a method of runtime/synchronizer.h");
DEFINE_int32(group_size, 2, "workers in a partial-reduce group");
DEFINE_uint64(sync_rows, 0, "rows of a worker between two averages");
DEFINE_string(initial_model, "", "model to go on from");
DEFINE_double(holdout, 0, "last share of TRAIN to validate by");
DEFINE_int32(folds, 0, "parts of a cross-validation");
DEFINE_bool(online, false, "one pass over data of any size, in its order");
DEFINE_uint64(online_rows, 200'000, "rows read, learnt and saved at a time");
DEFINE_double(positive_weight, 1, "weight of rows with label 1");
DEFINE_double(negative_rate, 1, "share of rows with label 0 to keep");
DEFINE_string(report, "", "page of HTML to write");

namespace motley::wide {
namespace {

Processor processor_flag() {
  if (FLAGS_device != "cpu" && FLAGS_device != "cuda")
    throw UsageError(fmt::format("--device is \"{}\". Use cpu or cuda", FLAGS_device));
  if (FLAGS_device == "cpu") return Processor::kCpu;
  if (device_count() == 0)  // before files are read
    throw UsageError("--device is cuda, but this process has no CUDA device. Use cpu");
  return Processor::kCuda;
}

TrainOptions train_options(int rank, int size) try {
  TrainOptions o;
  o.model.kind = model_kind(FLAGS_model);
  o.model.factors = FLAGS_k;
  o.model.loss = FLAGS_loss.empty() ? default_loss(o.model.kind) : loss_kind(FLAGS_loss);
  o.model.optimizer = optimizer_kind(FLAGS_optimizer);
  o.model.init_scale = static_cast<float>(FLAGS_init_scale);
  o.model.normalisation = FLAGS_normalise ? Normalisation::kInstance : Normalisation::kNone;
  o.epochs = FLAGS_epochs;
  o.learning_rate = static_cast<float>(FLAGS_lr);
  o.learning_rate_factors = static_cast<float>(FLAGS_lr_factors);
  o.prior_factors = static_cast<float>(FLAGS_prior);
  o.average = static_cast<float>(FLAGS_average);
  o.l1 = static_cast<float>(FLAGS_l1);
  o.l1_factors = static_cast<float>(FLAGS_l1_factors);
  o.l2 = static_cast<float>(FLAGS_l2);
  o.l2_factors = static_cast<float>(FLAGS_l2_factors);
  o.batch_rows = FLAGS_deterministic && FLAGS_batch <= 1 ? 128 : FLAGS_batch;
  o.threads = FLAGS_threads;
  o.processor = processor_flag();
  o.seed = FLAGS_seed;
  o.patience = FLAGS_patience;
  o.positive_weight = static_cast<float>(FLAGS_positive_weight);
  o.negative_rate = static_cast<float>(FLAGS_negative_rate);
  o.rank = rank;
  o.size = size;
  // A worker on its own needs steps for its progress line only.
  const std::size_t rows = FLAGS_sync_rows != 0 ? FLAGS_sync_rows : size > 1 ? 500 : 100'000;
  const bool whole_epochs =  // as the state goes to a device and back in every step
      o.processor == Processor::kCuda && FLAGS_sync_rows == 0 && size == 1;
  const std::size_t batch = std::max<std::size_t>(o.batch_rows, 1);
  o.sync_rows = whole_epochs ? 0 : (rows + batch - 1) / batch * batch;
  if (shards_by_flag()) settle_shard_flags(o);
  check(o);
  return o;
} catch (const Error& error) {
  throw UsageError(error.what());
}

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

// Flags that say what the initial model says already.
void check_initial(const Model& model) {
  const ModelOptions& o = model.options();
  const struct {
    const char* flag;
    std::string given;
    std::string known;
  } cases[] = {{"model", FLAGS_model, name(o.kind)},
               {"loss", FLAGS_loss, name(o.loss)},
               {"optimizer", FLAGS_optimizer, name(o.optimizer)},
               {"k", fmt::format("{}", FLAGS_k), fmt::format("{}", o.factors)}};
  for (const auto& c : cases) {
    if (gflags::GetCommandLineFlagInfoOrDie(c.flag).is_default || c.given == c.known) continue;
    throw UsageError(fmt::format("--{} is {}, but the initial model has {}. Leave the flag out",
                                 c.flag, c.given, c.known));
  }
}

std::string output_of(const std::string& files) {
  if (!FLAGS_output.empty()) return FLAGS_output;
  return file_name(files.substr(0, files.find(','))) + ".model";
}

// What a run trains on and from.
struct Inputs {
  std::optional<Model> initial;
  Dataset train;
  std::optional<Dataset> valid;
  std::unordered_map<std::uint32_t, std::string> names;  // of hashed features, for the report
};

Inputs read_inputs(const std::string& train_files, const std::string& valid_files, ModelKind kind,
                   Loss loss) {
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
  in.train = read_data(train_files, read);
  in.names = std::move(in.train.names);
  in.train.names.clear();
  if (!valid_files.empty()) {
    // By the columns of the training file, wherever they stand.
    in.valid = read_data(valid_files, alike(in.train.recipe, read), Weights::kNone);
    in.valid->names.clear();
  }
  if (FLAGS_holdout > 0) {
    const auto kept =
        static_cast<std::size_t>(static_cast<double>(in.train.rows()) * (1 - FLAGS_holdout));
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
void train_online(const std::string& files, TrainOptions options) {
  std::optional<Model> model;
  ReadOptions read = read_options(labels_for(options.model.loss));
  if (!FLAGS_initial_model.empty()) {
    model = Model::load(FLAGS_initial_model);
    check_initial(*model);
    read = read_options(*model, labels_for(model->options().loss));
  }
  read.fields = has_fields(model ? model->options().kind : options.model.kind);
  const std::string output = output_of(files == "-" ? "online" : files);
  options.epochs = 1;
  options.shuffles = false;
  options.sync_rows = 0;
  options.prior_factors = 0;  // which would wear away what is rarely seen, part by part
  options.average = 0;
  RowStream stream(split_files(files), read);
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
    model->save(output);
    if (!FLAGS_quiet) {
      fmt::print(
          "{:.0f} rows  loss of these {:.6f}, of all {:.6f}, each before it was learnt; {} "
          "features\n",
          rows, run.reports().back().train_loss, loss / rows, model->layout().slots);
      std::fflush(stdout);
    }
  }
  if (rows == 0) throw Error(ErrorCode::kInvalid, files + ": holds no rows");
  print_result(fmt::format("progressive loss {:.6f} of {:.0f} rows, saved to {}", loss / rows, rows,
                           output));
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

void check_ways(const std::vector<std::string>& files) {
  if (files.empty() || files.size() > 2 || (files.size() == 2 && !FLAGS_validate.empty())) {
    throw UsageError(
        "train takes TRAIN and at most one VALIDATION; several files have commas "
        "between them");
  }
  if (!(FLAGS_holdout >= 0 && FLAGS_holdout < 1)) {
    throw UsageError(fmt::format("--holdout is {}, but must be in [0, 1)", FLAGS_holdout));
  }
  const bool validates = files.size() == 2 || !FLAGS_validate.empty();
  const int ways = (validates ? 1 : 0) + (FLAGS_holdout > 0 ? 1 : 0) + (FLAGS_folds > 0 ? 1 : 0) +
                   (FLAGS_online ? 1 : 0);
  const int others = (FLAGS_folds > 0 ? 1 : 0) + (FLAGS_online ? 1 : 0);
  if (others + (shards_by_flag() ? 1 : 0) + (from_disk_by_flag() ? 1 : 0) > 1)
    throw UsageError("--shard, --disk, --folds and --online exclude each other");
  if (from_disk_by_flag()) check_disk_flags();
  if (ways > 1) {
    throw UsageError("VALIDATION, --holdout, --folds and --online exclude each other");
  }
  std::vector<std::string> methods = runtime::synchronizer_names();
  std::erase(methods, "none");  // would leave each worker with a model of its own rows
  if (std::ranges::find(methods, FLAGS_sync) == methods.end()) {
    throw UsageError(
        fmt::format("--sync is \"{}\". Use one of {}", FLAGS_sync, fmt::join(methods, ", ")));
  }
  if (FLAGS_folds > 0 && (!FLAGS_initial_model.empty() || !FLAGS_report.empty())) {
    throw UsageError("--folds makes no model: it takes neither --initial_model nor --report");
  }
}

}  // namespace

void train(const std::vector<std::string>& files) {
  check_ways(files);
  const std::string valid_path = files.size() == 2 ? files[1] : FLAGS_validate;
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
  if (FLAGS_online) return train_online(files[0], options);
  if (from_disk_by_flag()) {
    return train_from_disk(comm.clock(),
                           {.train = files[0], .valid = valid_path, .output = output_of(files[0])},
                           options);
  }
  Inputs in = read_inputs(files[0], valid_path, options.model.kind, options.model.loss);
  if (shards_by_flag()) {
    return train_sharded(comm, std::move(in.train), std::move(in.valid), options,
                         output_of(files[0]));
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
  const std::string output = output_of(files[0]);
  run.model().save(output);
  write_report(run, in,
               fmt::format("{} on {}", output, valid_path.empty() ? files[0] : valid_path));
  print_outcome(run, output);
}

}  // namespace motley::wide
