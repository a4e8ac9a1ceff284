// How well wide models predict, with one set of defaults for all data sets: trained on the first
// nine tenths of the training file, stopped by the last tenth, the test file read once. Beside it
// what other programs reached when tuned and stopped by the test file itself, which flatters them.
//
//   loss, AUC    of the test file; RMSE where labels are ratings
//   all rows     the same, trained again on the whole training file, for as many epochs
//   tuned peers  the best figure of LIBLINEAR, xLearn, libffm, VW and libFM, measured before
//
// With --versus the same of peers with their defaults, run here on the same three parts of the
// rows.
//
//   wide_quality --data folder     with a9a/, criteo80k/, frappe/, ml100k/; --syn1m rows' prefix
//   wide_quality --versus --libffm=path/of/ffm-train --libfm=path --xlearn=python3 --vw=python3
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/error.h"
#include "test/bench/wide/bench_main.h"
#include "test/bench/wide/peer_quality.h"
#include "wide/reader.h"
#include "wide/trainer.h"

DEFINE_string(data, "../shared/data",
              "folder of the data sets; those that are not there are named");
DEFINE_string(syn1m, "", "prefix of .train.ffm and .test.ffm of drawn rows");
DEFINE_string(only, "", "one data set");
DEFINE_string(models, "",
              "kinds, separated by commas; empty: all that the data set has a figure for");
DEFINE_bool(versus, false, "run the peers that there are, too");
DEFINE_int32(threads, 1, "of training");
DEFINE_bool(deterministic, false, "by batches of 128 rows");
DEFINE_string(optimizer, "adagrad", "sgd, adagrad, ftrl or adam");
DEFINE_double(lr, -1, "instead of the default");
DEFINE_double(lr_factors, -1, "instead of the default");
DEFINE_double(prior, -1, "instead of the default");
DEFINE_double(average, -1, "instead of the default");
DEFINE_double(l2, -1, "instead of the default");
DEFINE_double(l2_factors, -1, "instead of the default");
DEFINE_double(init_scale, -1, "instead of the default");
DEFINE_double(initial_accumulator, -1, "instead of the default");
DEFINE_uint64(seed, 1, "of training");
DEFINE_int32(epochs, -1, "instead of the default");

namespace motley::wide {
namespace {

struct Goal {
  ModelKind kind;
  int factors;
  double peers;  // their best test loss or RMSE
};

struct Set {
  std::string name;
  std::string train;
  std::string test;
  Loss loss = Loss::kLogistic;
  std::vector<Goal> goals;
  bool field_by_position = false;
};

std::vector<Set> sets() {
  using enum ModelKind;
  const std::string d = FLAGS_data + "/";
  std::vector<Set> all = {
      {.name = "criteo80k",
       .train = d + "criteo80k/criteo80k.train.ffm.gz",
       .test = d + "criteo80k/criteo80k.test.ffm.gz",
       .goals = {{kLogistic, 1, .4439}, {kFm, 8, .4438}, {kFfm, 4, .4421}, {kFwfm, 8, 0}}},
      {.name = "a9a",
       .train = d + "a9a/a9a",
       .test = d + "a9a/a9a.t",
       .goals = {{kLogistic, 1, .3241}, {kFm, 8, .32369}}},
      {.name = "frappe",
       .train = d + "frappe/train.libfm.gz",
       .test = d + "frappe/test.libfm.gz",
       .goals = {{kLogistic, 1, .29630}, {kFm, 8, .29523}, {kFfm, 8, .26773}, {kFwfm, 8, 0}},
       .field_by_position = true},
      {.name = "ml100k",
       .train = d + "ml100k/u1.base.reg.svm.gz",
       .test = d + "ml100k/u1.test.reg.svm.gz",
       .loss = Loss::kSquared,
       .goals = {{kFm, 8, .9296}}}};
  if (!FLAGS_syn1m.empty()) {
    all.push_back({.name = "syn1m",
                   .train = FLAGS_syn1m + ".train.ffm",
                   .test = FLAGS_syn1m + ".test.ffm",
                   .goals = {{kLogistic, 1, .47744}, {kFm, 8, .428}, {kFfm, 4, .45894}}});
  }
  return all;
}

Dataset read(const std::string& path, const Set& set) {
  const ReadOptions options{.labels = set.loss == Loss::kSquared ? Labels::kReal : Labels::kBinary};
  Dataset data;
  if (path.ends_with(".gz")) {
    std::string plain = std::filesystem::temp_directory_path() / "motley_quality_XXXXXX";
    const int file = mkstemp(plain.data());
    if (file < 0) throw_errno("make " + plain);
    const std::string command = "gzip -dc '" + path + "' > '" + plain + "'";
    if (std::system(command.c_str()) != 0) throw Error(ErrorCode::kIo, "cannot unpack " + path);
    data = read_file(plain, options);
    std::filesystem::remove(plain);
  } else {
    data = read_file(path, options);
  }
  if (set.field_by_position) {
    data.format = Format::kLibffm;
    for (std::size_t r = 0; r < data.rows(); ++r) {
      for (auto e = data.row_begin[r]; e < data.row_begin[r + 1]; ++e) {
        data.fields.push_back(static_cast<std::uint32_t>(e - data.row_begin[r]));
      }
    }
  }
  return data;
}

// Takes the last tenth of the rows out of `data`.
Dataset split_last_tenth(Dataset& data) {
  const std::size_t rows = data.rows() - data.rows() / 10;
  const auto edge = static_cast<std::ptrdiff_t>(data.row_begin[rows]);
  Dataset last{.format = data.format};
  const auto take = [](auto& from, auto& to, std::ptrdiff_t first) {
    if (from.empty()) return;
    to.assign(from.begin() + first, from.end());
    from.resize(static_cast<std::size_t>(first));
  };
  take(data.ids, last.ids, edge);
  take(data.values, last.values, edge);
  take(data.fields, last.fields, edge);
  take(data.labels, last.labels, static_cast<std::ptrdiff_t>(rows));
  last.row_begin.assign(data.row_begin.begin() + static_cast<std::ptrdiff_t>(rows),
                        data.row_begin.end());
  for (auto& begin : last.row_begin) begin -= static_cast<std::uint64_t>(edge);
  data.row_begin.resize(rows + 1);
  return last;
}

TrainOptions options_for(const Set& set, const Goal& goal) {
  TrainOptions o{.threads = FLAGS_threads};
  o.model.kind = goal.kind;
  o.model.factors = goal.factors;
  o.model.loss = set.loss;
  o.model.optimizer = optimizer_kind(FLAGS_optimizer);
  if (FLAGS_deterministic) o.batch_rows = 128;
  if (FLAGS_lr >= 0) o.learning_rate = static_cast<float>(FLAGS_lr);
  if (FLAGS_lr_factors >= 0) o.learning_rate_factors = static_cast<float>(FLAGS_lr_factors);
  if (FLAGS_prior >= 0) o.prior_factors = static_cast<float>(FLAGS_prior);
  if (FLAGS_average >= 0) o.average = static_cast<float>(FLAGS_average);
  if (FLAGS_l2 >= 0) o.l2 = static_cast<float>(FLAGS_l2);
  if (FLAGS_l2_factors >= 0) o.l2_factors = static_cast<float>(FLAGS_l2_factors);
  if (FLAGS_init_scale >= 0) o.model.init_scale = static_cast<float>(FLAGS_init_scale);
  if (FLAGS_initial_accumulator >= 0) {
    o.initial_accumulator = static_cast<float>(FLAGS_initial_accumulator);
  }
  o.seed = FLAGS_seed;
  if (FLAGS_epochs > 0) o.epochs = FLAGS_epochs;
  return o;
}

struct Rows {
  Dataset all;    // the training file
  Dataset train;  // its first nine tenths
  Dataset stop;   // and the rest
  Dataset test;
};

Evaluation evaluated(const Model& model, const Dataset& test, Loss loss) {
  const Samples samples = model.prepare(test);
  return evaluate(model.scores(samples), samples.labels, {.loss = loss});
}

double figure(const Evaluation& e, Loss loss) {
  return loss == Loss::kSquared ? e.rmse : e.log_loss;
}

void show(const Set& set, const Goal& goal, const Rows& rows) {
  TrainOptions options = options_for(set, goal);
  TrainingRun run(rows.train, rows.stop, options);
  while (run.next_step()) {
  }
  options.epochs = run.best_epoch();
  TrainingRun again(rows.all, std::nullopt, options);
  while (again.next_step()) {
  }
  const Evaluation e = evaluated(run.model(), rows.test, set.loss);
  const Evaluation all = evaluated(again.model(), rows.test, set.loss);
  const double best = figure(all, set.loss);
  fmt::print("{:10} {:5} {:3} {:9.5f} {:8} {:3} of {:2} {:9.5f} {:8}", set.name, name(goal.kind),
             goal.factors, figure(e, set.loss), e.auc ? fmt::format("{:.5f}", *e.auc) : "",
             run.best_epoch(), run.reports().size(), best,
             all.auc ? fmt::format("{:.5f}", *all.auc) : "");
  if (goal.peers > 0) fmt::print(" {:9.5f} {:+7.2f} %", goal.peers, 100 * (best / goal.peers - 1));
  fmt::print("\n");
  std::fflush(stdout);
}

void show_peers(const Set& set, const Goal& goal, const Rows& rows) {
  std::string folder = std::filesystem::temp_directory_path() / "motley_quality_peers_XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) throw_errno("make " + folder);
  for (const PeerScores& peer :
       peer_scores({rows.train, rows.stop, rows.test}, goal.kind, goal.factors, set.loss, folder)) {
    fmt::print("{:10} {:5} {:3} ", set.name, name(goal.kind), goal.factors);
    if (peer.scores.size() != rows.test.rows()) {
      fmt::print("{}: {} predictions. {}\n", peer.name, peer.scores.size(), peer.failure);
      continue;
    }
    const Evaluation e = evaluate(peer.scores, rows.test.labels, {.loss = set.loss});
    fmt::print("{:9.5f} {:8} {}\n", figure(e, set.loss), e.auc ? fmt::format("{:.5f}", *e.auc) : "",
               peer.name);
  }
  std::fflush(stdout);
  std::filesystem::remove_all(folder);
}

void run_all() {
  fmt::print(
      "data       model  k  loss/RMSE AUC      epoch       all rows AUC    tuned peers  ours is\n");
  for (const Set& set : sets()) {
    if (!FLAGS_only.empty() && FLAGS_only != set.name) continue;
    if (!std::filesystem::exists(set.train)) {
      fmt::print("{:10} is not there: {}\n", set.name, set.train);
      continue;
    }
    Rows rows{.all = read(set.train, set), .test = read(set.test, set)};
    rows.train = rows.all;
    rows.stop = split_last_tenth(rows.train);
    for (const Goal& goal : set.goals) {
      const std::string wanted = "," + FLAGS_models + ",";
      if (!FLAGS_models.empty() &&
          wanted.find("," + std::string(name(goal.kind)) + ",") == std::string::npos) {
        continue;
      }
      show(set, goal, rows);
      if (FLAGS_versus) show_peers(set, goal, rows);
    }
  }
}

}  // namespace
}  // namespace motley::wide

int main(int argc, char** argv) {
  return motley::wide::bench_main(argc, argv, motley::wide::run_all);
}
