#include "test/bench/wide/peer_quality.h"

#include <fmt/format.h>
#include <gflags/gflags.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <utility>

#include "comm/error.h"
#include "test/bench/wide/timed_run.h"

DECLARE_string(liblinear);
DECLARE_string(libffm);
DECLARE_string(libfm);
DECLARE_string(xlearn);
DECLARE_string(vw);

namespace motley::wide {
namespace {

using Command = std::vector<std::string>;

enum class Text { kLibsvm, kLibffm, kVw };

void write(const Dataset& data, Text kind, const std::string& path, bool append = false) {
  std::ofstream out(path, append ? std::ios::app : std::ios::trunc);
  for (std::size_t r = 0; r < data.rows(); ++r) {
    const float label = data.labels[r];
    out << (kind == Text::kVw && label == 0 ? -1 : label) << (kind == Text::kVw ? " |f" : "");
    std::map<std::uint32_t, std::uint64_t> by_id;  // LIBLINEAR wants them so
    for (auto e = data.row_begin[r]; e < data.row_begin[r + 1]; ++e) by_id[data.ids[e]] = e;
    for (const auto& [id, e] : by_id) {  // to LIBLINEAR an index of 0 is an error
      if (kind != Text::kLibffm) out << fmt::format(" {}:{}", id + 1, data.value(e));
    }
    for (auto e = data.row_begin[r]; kind == Text::kLibffm && e < data.row_begin[r + 1]; ++e) {
      out << fmt::format(" {}:{}:{}", data.fields[e], data.ids[e], data.value(e));
    }
    out << '\n';
  }
  if (!out) throw_errno("write " + path);
}

float score_of(double probability) {
  const double p = std::clamp(probability, 1e-7, 1 - 1e-7);
  return static_cast<float>(std::log(p / (1 - p)));
}

// The numbers of a file, one a line; `word`: in which word of it.
std::vector<float> read_scores(const std::string& path, Loss loss, std::size_t word = 0) {
  std::ifstream in(path);
  std::vector<float> scores;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string text;
    for (std::size_t i = 0; i <= word; ++i) words >> text;
    const double x = std::stod(text);
    scores.push_back(loss == Loss::kLogistic ? score_of(x) : static_cast<float>(x));
  }
  return scores;
}

std::string beside(const std::string& program, const std::string& last, const std::string& with) {
  return program.substr(0, program.size() - last.size()) + with;
}

class Peers {
 public:
  Peers(ModelKind kind, int factors, Loss loss, std::string folder, std::size_t train_rows)
      : kind_(kind),
        factors_(std::to_string(factors)),
        loss_(loss),
        folder_(std::move(folder)),
        train_rows_(train_rows) {}

  std::vector<PeerScores> all() {
    const bool linear = kind_ == ModelKind::kLogistic;
    const bool classes = loss_ == Loss::kLogistic;
    if (linear) add("LIBLINEAR -s 0", FLAGS_liblinear, [this] { return liblinear(); });
    if (linear) add("VW", FLAGS_vw, [this] { return vw(); });
    if (kind_ == ModelKind::kFm) add("libFM MCMC", FLAGS_libfm, [this] { return libfm(); });
    if (kind_ == ModelKind::kFfm && classes)
      add("libffm", FLAGS_libffm, [this] { return libffm(); });
    if (kind_ != ModelKind::kFwfm) add("xLearn", FLAGS_xlearn, [this] { return xlearn(); });
    return std::move(found_);
  }

 private:
  void add(const std::string& name, const std::string& program,
           const std::function<std::vector<float>()>& predict) {
    if (program.empty()) return;
    PeerScores peer{.name = name, .scores = {}, .failure = {}};
    try {
      peer.scores = predict();
    } catch (const std::exception& error) {
      peer.failure = error.what();
    }
    found_.push_back(std::move(peer));
  }
  void run(const Command& command) const { timed_run(command, folder_); }

  // It does not stop by a file, and trains to its own precision.
  std::vector<float> liblinear() const {
    run({FLAGS_liblinear, "-s", "0", "train.svm", "model"});
    run({beside(FLAGS_liblinear, "train", "predict"), "-b", "1", "test.svm", "model", "out"});
    std::ifstream in(folder_ + "/out");
    std::string word, first, header;
    std::getline(in, header);  // labels, and the order of the two
    std::istringstream(header) >> word >> first;
    std::ofstream rows(folder_ + "/rows");
    for (std::string line; std::getline(in, line);) rows << line << '\n';
    rows.close();
    return read_scores(folder_ + "/rows", loss_, first == "1" ? 1 : 2);
  }
  std::vector<float> vw() const {
    run({FLAGS_vw, "-m", "vowpalwabbit", "--loss_function", "logistic", "-d", "both.vw", "-k", "-c",
         "--passes", "100", "--holdout_after", std::to_string(train_rows_), "-f", "model"});
    run({FLAGS_vw, "-m", "vowpalwabbit", "-t", "-i", "model", "-d", "test.vw", "--link", "logistic",
         "-p", "out"});
    return read_scores(folder_ + "/out", loss_);
  }
  std::vector<float> libfm() const {
    run({FLAGS_libfm, "-task", loss_ == Loss::kLogistic ? "c" : "r", "-dim", "1,1," + factors_,
         "-seed", "1", "-train", "train.svm", "-test", "test.svm", "-out", "out"});
    return read_scores(folder_ + "/out", loss_);
  }
  std::vector<float> libffm() const {
    run({FLAGS_libffm, "-k", factors_, "-p", "stop.ffm", "--auto-stop", "train.ffm", "model"});
    run({beside(FLAGS_libffm, "train", "predict"), "test.ffm", "model", "out"});
    return read_scores(folder_ + "/out", loss_);
  }
  std::vector<float> xlearn() const {
    const std::string kind = kind_ == ModelKind::kLogistic ? "linear" : name(kind_);
    const bool classes = loss_ == Loss::kLogistic;
    const char* const text = kind_ == ModelKind::kFfm ? "ffm" : "svm";
    // Not quiet: then it would not look at the rows that stop it.
    run({"env", "USER=nobody", FLAGS_xlearn, "-c",
         fmt::format("import xlearn as x; m = x.create_{}(); m.setTrain('train.{}'); "
                     "m.setValidate('stop.{}'); "
                     "m.fit({{'task': '{}', 'k': {}, 'nthread': 1}}, 'model'); {}"
                     "m.setTest('test.{}'); m.predict('model', 'out')",
                     kind, text, text, classes ? "binary" : "reg", factors_,
                     classes ? "m.setSigmoid(); " : "", text)});
    return read_scores(folder_ + "/out", loss_);
  }

  ModelKind kind_;
  std::string factors_;
  Loss loss_;
  std::string folder_;
  std::size_t train_rows_;
  std::vector<PeerScores> found_;
};

}  // namespace

std::vector<PeerScores> peer_scores(const Split& split, ModelKind kind, int factors, Loss loss,
                                    const std::string& folder) {
  const std::pair<const char*, const Dataset&> parts[] = {
      {"train", split.train}, {"stop", split.stop}, {"test", split.test}};
  for (const auto& [part, data] : parts) {
    const std::string path = folder + "/" + part;
    if (kind != ModelKind::kFfm) write(data, Text::kLibsvm, path + ".svm");
    if (kind == ModelKind::kFfm) write(data, Text::kLibffm, path + ".ffm");
    if (kind == ModelKind::kLogistic) write(data, Text::kVw, path + ".vw");
  }
  if (kind == ModelKind::kLogistic) {
    write(split.train, Text::kVw, folder + "/both.vw");
    write(split.stop, Text::kVw, folder + "/both.vw", true);
  }
  return Peers(kind, factors, loss, folder, split.train.rows()).all();
}

}  // namespace motley::wide
