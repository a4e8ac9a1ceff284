#include "wide/cli/train_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gflags/gflags.h>

#include <algorithm>

#include "comm/device.h"
#include "comm/error.h"
#include "runtime/synchronizer.h"
#include "wide/cli/command_line.h"
#include "wide/cli/flags.h"
#include "wide/cli/outputs.h"
#include "wide/cli/train_from_disk.h"
#include "wide/cli/train_sharded.h"
#include "wide/option_error.h"

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

// Values that stand for a default are none that a user may give.
void check_given() {
  const struct {
    const char* flag;
    bool holds;
    const char* range;
  } cases[] = {{"epochs", FLAGS_epochs >= 1, "at least 1"},
               {"lr", FLAGS_lr > 0, "above 0"},
               {"lr_factors", FLAGS_lr_factors > 0, "above 0"},
               {"prior", FLAGS_prior >= 0, "at least 0"},
               {"average", FLAGS_average >= 0 && FLAGS_average <= 1, "in [0, 1]"},
               {"l2_factors", FLAGS_l2_factors >= 0, "at least 0"},
               {"init_scale", FLAGS_init_scale >= 0, "at least 0"},
               {"folds", FLAGS_folds >= 2, "at least 2"},
               {"group_size", FLAGS_group_size >= 1, "at least 1"},
               {"sync_rows", FLAGS_sync_rows >= 1, "at least 1"},
               {"online_rows", FLAGS_online_rows >= 1, "at least 1"},
               {"holdout", FLAGS_holdout >= 0 && FLAGS_holdout < 1, "in [0, 1)"}};
  for (const auto& c : cases) {
    if (is_given(c.flag)) check_flag(c.flag, c.holds, c.range);
  }
}

void check_ways(const std::vector<std::string>& files) {
  if (files.empty() || files.size() > 2 || (files.size() == 2 && !FLAGS_validate.empty())) {
    throw UsageError(
        "train takes TRAIN and at most one VALIDATION; several files have commas "
        "between them");
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
  if (FLAGS_online &&
      (!FLAGS_report.empty() || FLAGS_prior > 0 || FLAGS_average > 0 || FLAGS_epochs > 1)) {
    throw UsageError("--online takes one pass and none of --report, --prior and --average");
  }
  if (FLAGS_folds > 0 && (!FLAGS_initial_model.empty() || !FLAGS_report.empty())) {
    throw UsageError("--folds makes no model: it takes neither --initial_model nor --report");
  }
}

void check_files(const TrainFiles& files) {
  std::vector<std::string> inputs = inputs_of(files.train);
  for (const std::string& file : split_files(files.valid)) inputs.push_back(file);
  const std::string model = FLAGS_folds > 0 ? "" : files.output;
  check_outputs({{"output", model}, {"report", FLAGS_report}}, inputs);
  // Which may be replaced by what becomes of it, and by nothing else.
  check_outputs({{"report", FLAGS_report}}, {FLAGS_initial_model});
}

}  // namespace

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
} catch (const OptionError&) {
  throw;  // which main() calls by the name of its flag
} catch (const Error& error) {
  throw UsageError(error.what());
}

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

TrainFiles train_files(const std::vector<std::string>& arguments) {
  check_given();
  check_ways(arguments);
  TrainFiles files{.train = arguments[0],
                   .valid = arguments.size() == 2 ? arguments[1] : FLAGS_validate,
                   .output = FLAGS_output};
  if (files.output.empty() && FLAGS_online && files.train == "-") files.output = "online.model";
  if (files.output.empty()) {
    files.output = file_name(files.train.substr(0, files.train.find(','))) + ".model";
  }
  check_files(files);
  return files;
}

}  // namespace motley::wide
