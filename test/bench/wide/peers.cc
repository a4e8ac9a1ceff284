#include "test/bench/wide/peers.h"

#include <fmt/format.h>
#include <gflags/gflags.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "comm/error.h"
#include "test/bench/wide/timed_run.h"

DEFINE_string(liblinear, "liblinear-train", "LIBLINEAR's train");
DEFINE_string(libffm, "", "libffm's ffm-train");
DEFINE_string(libfm, "", "libFM");
DEFINE_string(xlearn, "", "a python that has the package xlearn");
DEFINE_string(vw, "", "a python that has the package vowpalwabbit");

namespace motley::wide {
namespace {

std::string text(int n) { return std::to_string(n); }

// The number behind the last `key` in `output`.
std::optional<double> number_behind(const std::string& output, const std::string& key) {
  const std::size_t at = output.rfind(key);
  if (at == std::string::npos) return std::nullopt;
  std::istringstream in(output.substr(at + key.size()));
  double number = 0;
  if (!(in >> number)) return std::nullopt;
  return number;
}

Peer liblinear() {
  return {.name = "LIBLINEAR -s 7",
          .what = "dual coordinate descent",
          .command = [](const Work& w, const TrainingFiles& f) -> std::vector<std::string> {
            if (w.model != "lr" || w.threads > 1) return {};
            // It stops by precision: a coarse one and a fine one.
            return {FLAGS_liblinear,
                    "-s",
                    "7",
                    "-c",
                    "0.05",
                    "-B",
                    "1",
                    "-e",
                    w.epochs == 1 ? "10" : "0.001",
                    f.svm,
                    f.folder + "/model"};
          },
          .epochs_made = [](const std::string& o) { return number_behind(o, "#iter ="); }};
}

Peer libffm() {
  return {.name = "libffm",
          .keeps = "ffm",
          .command = [](const Work& w, const TrainingFiles& f) -> std::vector<std::string> {
            if (w.model != "ffm") return {};
            return {FLAGS_libffm,    "-k",  text(w.factors),    "-t", text(w.epochs), "-s",
                    text(w.threads), f.ffm, f.folder + "/model"};
          }};
}

Peer libfm() {
  return {.name = "libFM",
          .what = "SGD, evaluates after each epoch",
          .command = [](const Work& w, const TrainingFiles& f) -> std::vector<std::string> {
            if (w.model != "fm" || w.threads > 1) return {};
            return {FLAGS_libfm,
                    "-task",
                    "c",
                    "-method",
                    "sgd",
                    "-iter",
                    text(w.epochs),
                    "-dim",
                    fmt::format("1,1,{}", w.factors),
                    "-learn_rate",
                    "0.01",
                    "-init_stdev",
                    "0.01",
                    "-seed",
                    "1",
                    "-train",
                    f.svm,
                    "-test",
                    f.folder + "/one.svm"};
          }};
}

Peer xlearn() {
  return {.name = "xLearn",
          .keeps = "ffm",
          .command = [](const Work& w, const TrainingFiles& f) -> std::vector<std::string> {
            const std::string kind = w.model == "lr" ? "linear" : w.model;
            const std::string code = fmt::format(
                "import xlearn as x; m = x.create_{}(); m.setTrain('{}'); m.disableEarlyStop(); "
                "m.setQuiet(); m.fit({{'task': 'binary', 'opt': 'adagrad', 'lr': 0.2, 'k': {}, "
                "'epoch': {}, 'nthread': {}}}, 'model')",
                kind, w.model == "ffm" ? f.ffm : f.svm, std::max(w.factors, 1), w.epochs,
                w.threads);
            return {"env", "USER=nobody", FLAGS_xlearn, "-c", code};  // it ends without USER
          }};
}

Peer vw() {
  return {.name = "VW",
          .what = "one learning thread, and one that reads the cache",
          .keeps = "lr",
          .command = [](const Work& w, const TrainingFiles& f) -> std::vector<std::string> {
            if (w.model != "lr" || w.threads > 1) return {};
            return {FLAGS_vw,   "-m", "vowpalwabbit", "--adaptive",   "--loss_function",
                    "logistic", "-b", "20",           "--quiet",      "-d",
                    f.vw,       "-c", "--passes",     text(w.epochs), "--holdout_off"};
          }};
}

bool runs(const std::vector<std::string>& command, const std::string& folder) {
  try {
    timed_run(command, folder);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

TrainingFiles write_training_files(const std::string& ffm, const std::string& folder, Forms forms) {
  TrainingFiles files{.folder = folder,
                      .ffm = folder + "/train.ffm",
                      .svm = folder + "/train.svm",
                      .vw = folder + "/train.vw"};
  std::ifstream in(ffm);
  std::ofstream copy(files.ffm), svm(files.svm), vw(files.vw), one(folder + "/one.svm");
  std::size_t rows = 0;
  for (std::string line; std::getline(in, line); ++rows) {
    copy << line << '\n';  // beside which xLearn writes a cache
    if (forms == Forms::kFields) continue;
    std::istringstream words(line);
    std::string label, word;
    words >> label;
    std::map<unsigned long, std::string> by_index;  // LIBLINEAR wants them so, and each once
    while (words >> word) {
      const std::string feature = word.substr(word.find(':') + 1);
      by_index[std::stoul(feature)] = feature;
    }
    std::string features, names;
    for (const auto& [index, feature] : by_index) {
      features += " " + feature;
      names += " " + std::to_string(index);
    }
    svm << label << features << '\n';
    vw << (label == "1" ? "1" : "-1") << " |f" << names << '\n';
    if (rows == 0) one << label << features << '\n';
  }
  if (rows == 0 || !svm || !vw || !copy) throw_errno("write training files in " + folder);
  return files;
}

std::vector<Peer> find_peers(std::vector<std::string>& missing) {
  std::vector<Peer> peers;
  const auto consider = [&](const Peer& peer, const std::string& program,
                            const std::vector<std::string>& arguments, const char* flag) {
    std::vector<std::string> probe{"sh", "-c", "command -v \"$0\"", program};
    bool found = !program.empty() && runs(probe, "/tmp");
    if (found && !arguments.empty()) {
      probe = {program};
      probe.insert(probe.end(), arguments.begin(), arguments.end());
      found = runs(probe, "/tmp");
    }
    if (found) {
      peers.push_back(peer);
    } else {
      missing.push_back(fmt::format("{} (--{})", peer.name, flag));
    }
  };
  consider(liblinear(), FLAGS_liblinear, {}, "liblinear");
  consider(libffm(), FLAGS_libffm, {}, "libffm");
  consider(libfm(), FLAGS_libfm, {}, "libfm");
  consider(xlearn(), FLAGS_xlearn, {"-c", "import xlearn"}, "xlearn");
  consider(vw(), FLAGS_vw, {"-c", "import vowpalwabbit"}, "vw");
  return peers;
}

Cost reading_cost(const Peer& peer, const TrainingFiles& files) {
  const Work work{.model = peer.keeps, .factors = 4};
  const TimedRun first = timed_run(peer.command(work, files), files.folder);
  const TimedRun a = timed_run(peer.command(work, files), files.folder);
  const TimedRun b = timed_run(peer.command(work, files), files.folder);
  return {first.wall - std::min(a.wall, b.wall),
          first.processor - std::min(a.processor, b.processor)};
}

Cost median(const std::vector<Cost>& costs) {
  const auto middle = [&](double Cost::*what) {
    std::vector<double> sorted;
    for (const Cost& cost : costs) sorted.push_back(cost.*what);
    std::ranges::sort(sorted);
    return (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]) / 2;
  };
  return {middle(&Cost::wall), middle(&Cost::processor)};
}

bool PeerRuns::add(const Peer& peer, Work work, const TrainingFiles& files) {
  const int epochs = std::max(work.epochs, 2);
  work.epochs = 1;
  const auto short_command = peer.command(work, files);
  if (short_command.empty()) return false;
  // Of the first run some make a file of their own, which all others read instead of the text.
  if (epochs_.empty()) timed_run(short_command, files.folder);
  const TimedRun one = timed_run(short_command, files.folder);
  work.epochs = epochs;
  const TimedRun many = timed_run(peer.command(work, files), files.folder);
  double more = epochs - 1;
  if (peer.epochs_made) {
    const auto first = peer.epochs_made(one.output);
    const auto all = peer.epochs_made(many.output);
    if (!first || !all || *all <= *first) {
      throw Error(ErrorCode::kInvalid, peer.name + ": no number of epochs in its output");
    }
    more = *all - *first;
  }
  epochs_.push_back({(many.wall - one.wall) / more, (many.processor - one.processor) / more});
  return true;
}

}  // namespace motley::wide
