// motley-wide: trains a wide model on a libsvm or libffm file, predicts with it, evaluates it.
// Started by motley-run, `train` runs data-parallel. Exit code 0: done; 1: an error; 2: misuse.
#include <fmt/format.h>
#include <gflags/gflags.h>
#include <glog/logging.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/error.h"
#include "comm/options.h"
#include "comm/status_signal.h"
#include "comm/version.h"
#include "runtime/synchronizer.h"
#include "runtime/trainer.h"
#include "wide/cli/command_line.h"
#include "wide/cli/progress.h"
#include "wide/logistic.h"
#include "wide/reader.h"
#include "wide/trainer.h"

DEFINE_string(model, "fm", "lr or fm");
DEFINE_int32(k, 8, "factors of an FM");
DEFINE_int32(epochs, 20, "passes over the data, at most");
DEFINE_double(lr, 0.1, "AdaGrad's learning rate");
DEFINE_double(l2, 2e-5, "shrinkage of linear weights");
DEFINE_double(l2_factors, 5e-4, "shrinkage of factors");
DEFINE_double(init_scale, 0.2, "size of the factors' initial values");
DEFINE_uint64(batch, 1, "rows per update");
DEFINE_uint64(seed, 1, "of initial values and shuffles");
DEFINE_bool(normalise, true, "divide each row by its norm");
DEFINE_string(validate, "", "file for the log loss after each epoch and the early stop");
DEFINE_int32(patience, 3, "epochs without a better validation loss before the early stop");
DEFINE_string(format, "auto", "auto, libsvm or libffm");
DEFINE_string(output, "", "file to write");
DEFINE_bool(quiet, false, "print the result only");
DEFINE_string(sync, "all_reduce", "all_reduce or partial_reduce");
DEFINE_int32(group_size, 2, "workers in a partial-reduce group");
DEFINE_uint64(sync_rows, 0, "rows of a worker between two averages");

namespace motley::wide {
namespace {

constexpr const char* kUsage = R"(motley-wide train TRAIN [VALIDATION]   train a model and save it
motley-wide predict MODEL DATA         print a probability for each row
motley-wide eval MODEL DATA            print log loss, AUC and accuracy
motley-wide COMMAND --help             the flags of a command
motley-wide --version
Data is libsvm (label index:value …) or libffm (label field:index:value …) text.
)";

constexpr const char* kTrainHelp = R"(motley-wide train TRAIN [VALIDATION] [flags]
  -m, --model lr|fm     logistic regression or factorization machine (fm)
  -k, --k N             factors of an FM, 1 to 256 (8)
  -e, --epochs N        passes over the data, at most (20)
  -r, --lr X            AdaGrad's learning rate (0.1)
      --l2 X            shrinkage of linear weights (2e-5)
      --l2_factors X    shrinkage of factors (5e-4)
      --init_scale X    factors begin uniform in +-X/sqrt(k) (0.2)
  -b, --batch N         rows per update (1)
  -s, --seed N          of initial values and shuffles (1)
      --nonormalise     take rows as they are; else each is divided by its norm
      --validate FILE   the same as VALIDATION: report after each epoch, stop early, keep the best
      --patience N      epochs without a better validation loss before the stop (3)
      --format F        auto, libsvm or libffm (auto)
  -o, --output FILE     the model (TRAIN's name with .model added, in the current folder)
  -q, --quiet           print the result only
Under motley-run, with several workers that all read the same files:
      --sync S          all_reduce or partial_reduce (all_reduce)
      --group_size P    workers in a partial-reduce group (2)
      --sync_rows N     rows of a worker between two averages (500)
)";

constexpr const char* kPredictHelp = R"(motley-wide predict MODEL DATA [flags]
Prints the probability of label 1 for each row of DATA, one a line, in order; blank lines and
comments of DATA have none. DATA may have labels, which are not looked at, or not.
      --format F        auto, libsvm or libffm (auto)
  -o, --output FILE     instead of standard output
  -q, --quiet           no warnings
)";

constexpr const char* kEvalHelp = R"(motley-wide eval MODEL DATA [flags]
Prints log loss, AUC and accuracy of MODEL on DATA, which has labels.
      --format F        auto, libsvm or libffm (auto)
  -q, --quiet           no warnings
)";

std::optional<Format> format_flag() {
  if (FLAGS_format == "auto") return std::nullopt;
  if (FLAGS_format == "libsvm") return Format::kLibsvm;
  if (FLAGS_format == "libffm") return Format::kLibffm;
  throw UsageError(fmt::format("--format is \"{}\". Use auto, libsvm or libffm", FLAGS_format));
}

std::string to_text(const Evaluation& e) {
  return fmt::format("log loss {:.6f}  AUC {}  accuracy {:.4f}", e.log_loss,
                     e.auc ? fmt::format("{:.6f}", *e.auc) : "none (all labels are alike)",
                     e.accuracy);
}

void warn_of_unknown(const Samples& samples) {
  if (FLAGS_quiet || samples.unknown_entries == 0) return;
  fmt::print(stderr,
             "motley-wide: {} of {} entries have features that the model does not know; "
             "they count as weight 0\n",
             samples.unknown_entries, samples.unknown_entries + samples.slots.size());
}

TrainOptions train_options(int rank, int size) try {
  TrainOptions o;
  o.model.kind = model_kind(FLAGS_model);
  o.model.factors = FLAGS_k;
  o.model.init_scale = static_cast<float>(FLAGS_init_scale);
  o.model.normalisation = FLAGS_normalise ? Normalisation::kInstance : Normalisation::kNone;
  o.epochs = FLAGS_epochs;
  o.learning_rate = static_cast<float>(FLAGS_lr);
  o.l2 = static_cast<float>(FLAGS_l2);
  o.l2_factors = static_cast<float>(FLAGS_l2_factors);
  o.batch_rows = FLAGS_batch;
  o.seed = FLAGS_seed;
  o.patience = FLAGS_patience;
  o.rank = rank;
  o.size = size;
  // A worker on its own needs steps for its progress line only.
  const std::size_t rows = FLAGS_sync_rows != 0 ? FLAGS_sync_rows : size > 1 ? 500 : 10'000;
  const std::size_t batch = std::max<std::size_t>(o.batch_rows, 1);
  o.sync_rows = (rows + batch - 1) / batch * batch;
  check(o);
  return o;
} catch (const Error& error) {
  throw UsageError(error.what());
}

void print_epoch(const EpochReport& report) {
  std::string line =
      fmt::format("epoch {:3}  train log loss {:.6f}", report.epoch, report.train_loss);
  if (report.validation) line += "  validation " + to_text(*report.validation);
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

// A line that the caller waits for: lost output is an error.
void print_result(const std::string& line) {
  if (std::fprintf(stdout, "%s\n", line.c_str()) < 0 || std::fflush(stdout) != 0) {
    throw_errno("write standard output");
  }
}

// The part of a path behind its last slash.
std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

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

void train(const std::vector<std::string>& files) {
  if (files.empty() || files.size() > 2 || (files.size() == 2 && !FLAGS_validate.empty())) {
    throw UsageError("train takes TRAIN and at most one VALIDATION file");
  }
  if (FLAGS_sync != "all_reduce" && FLAGS_sync != "partial_reduce") {
    throw UsageError(fmt::format("--sync is \"{}\". Use all_reduce or partial_reduce", FLAGS_sync));
  }
  const ReadOptions read{.format = format_flag()};
  const std::string valid_path = files.size() == 2 ? files[1] : FLAGS_validate;
  Communicator comm = Communicator::join(job_options());
  const StatusSignal status(comm, [](const std::string& text) { fmt::print(stderr, "{}", text); });
  const bool first = comm.rank() == 0;
  TrainOptions options = train_options(comm.rank(), comm.size());
  Progress progress(comm.clock(),
                    first && !FLAGS_quiet ? Progress::Mode::kIfTerminal : Progress::Mode::kOff);
  if (first && !FLAGS_quiet) {
    options.on_epoch = [&progress](const EpochReport& report) {
      progress.clear();
      print_epoch(report);
    };
  }
  std::optional<Dataset> valid;
  if (!valid_path.empty()) valid = read_file(valid_path, read);
  TrainingRun run(read_file(files[0], read), std::move(valid), options);
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
  const std::string output = FLAGS_output.empty() ? file_name(files[0]) + ".model" : FLAGS_output;
  run.model().save(output);
  if (const auto result = run.validate()) {
    print_result(fmt::format("{} (epoch {} of {})", to_text(*result), run.best_epoch(),
                             run.reports().size()));
  } else {
    print_result(fmt::format("train log loss {:.6f}", run.reports().back().train_loss));
  }
  if (FLAGS_quiet) return;
  print_result(fmt::format("{} features, saved to {}", run.model().layout().slots, output));
}

void predict(const std::vector<std::string>& files) {
  if (files.size() != 2) throw UsageError("predict takes MODEL and DATA");
  const ReadOptions read{.format = format_flag(), .labels = Labels::kOptional};
  const Model model = Model::load(files[0]);
  const Samples samples = model.prepare(read_file(files[1], read));
  warn_of_unknown(samples);
  std::string text;
  for (const float score : model.scores(samples)) {
    text += fmt::format("{}\n", LogisticLoss::probability(score));  // the shortest that reads back
  }
  const bool to_file = !FLAGS_output.empty();
  std::FILE* const out = to_file ? std::fopen(FLAGS_output.c_str(), "wb") : stdout;
  if (out == nullptr) throw_errno("open " + FLAGS_output);
  const std::string name = to_file ? FLAGS_output : "standard output";
  const bool written = std::fwrite(text.data(), 1, text.size(), out) == text.size();
  const bool closed = (to_file ? std::fclose(out) : std::fflush(out)) == 0;
  if (!written || !closed) throw_errno("write " + name);
}

void eval(const std::vector<std::string>& files) {
  if (files.size() != 2) throw UsageError("eval takes MODEL and DATA");
  const Model model = Model::load(files[0]);
  const Samples samples = model.prepare(read_file(files[1], {.format = format_flag()}));
  warn_of_unknown(samples);
  print_result(to_text(evaluate(model.scores(samples), samples.labels)));
}

struct Command {
  const char* name;
  const char* help;
  std::vector<std::string> flags;
  std::function<void(const std::vector<std::string>&)> run;
};

int run_command(std::span<char* const> arguments) {
  const std::vector<Command> commands{
      {"train",
       kTrainHelp,
       {"model m", "k", "epochs e", "lr r", "l2", "l2_factors", "init_scale", "batch b", "seed s",
        "normalise", "validate", "patience", "format", "output o", "quiet q", "sync", "group_size",
        "sync_rows"},
       train},
      {"predict", kPredictHelp, {"format", "output o", "quiet q"}, predict},
      {"eval", kEvalHelp, {"format", "quiet q"}, eval}};
  const std::string first = arguments.empty() ? "" : arguments[0];
  if (first == "--help" || first == "-h" || first == "help") {
    fmt::print("{}", kUsage);
    return 0;
  }
  if (first == "--version") {
    fmt::print("motley-wide {}\n", version_text());
    return 0;
  }
  const auto command = std::find_if(commands.begin(), commands.end(),
                                    [&](const Command& c) { return c.name == first; });
  if (command == commands.end()) {
    fmt::print(
        stderr, "motley-wide: {}\n{}",
        first.empty() ? "a command is missing" : fmt::format("there is no command \"{}\"", first),
        kUsage);
    return 2;
  }
  const auto rest = arguments.subspan(1);
  const auto asks_help = [](const char* a) {
    return std::string(a) == "--help" || std::string(a) == "-h";
  };
  if (std::any_of(rest.begin(), rest.end(), asks_help)) {
    fmt::print("{}", command->help);
    return 0;
  }
  command->run(parse_flags(rest, command->flags));
  return 0;
}

}  // namespace
}  // namespace motley::wide

int main(int argc, char** argv) {
  try {
    return motley::wide::run_command({argv + 1, static_cast<std::size_t>(std::max(argc - 1, 0))});
  } catch (const motley::wide::UsageError& e) {
    fmt::print(stderr, "motley-wide: {}. Try --help\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    fmt::print(stderr, "motley-wide: {}\n", e.what());
    return 1;
  }
}
