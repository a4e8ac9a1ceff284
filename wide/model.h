// wide/model.h: a wide model: what it is made of, how it scores rows, how it is kept. Start here.
//
//   Dataset data = read_file("train.txt");
//   Model model({.kind = ModelKind::kFm}, Dictionary::by_frequency(data));
//   Samples samples = model.prepare(std::move(data));
//   Evaluation e = evaluate(model.scores(samples), samples.labels);    // auc.h
//   model.save("train.model");
//
// Training goes by flow: rows and features are the two sides of a bipartite graph, an entry of the
// data set is an edge, and a model is three functions (logistic.h and fm.h have them):
//   gather   what a feature sends to a sample: its part of the sample's sum
//   score    what a sample makes of its sum
//   scatter  what a sample sends back to a feature: the gradient of the loss by its weights
// kernel/flow.h runs any such model over rows; a new one (SVM, FFM) is a new header beside fm.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/view.h"
#include "wide/dataset.h"
#include "wide/dictionary.h"
#include "wide/samples.h"

namespace motley::wide {

enum class ModelKind : std::uint8_t {
  kLogistic = 1,  // "lr", logistic regression
  kFm = 2,        // "fm", factorization machine
};
const char* name(ModelKind kind) noexcept;
// Throws kInvalid, listing the names there are.
ModelKind model_kind(const std::string& name);

enum class Normalisation : std::uint8_t {
  kNone = 0,
  // Each row x becomes x / |x|, so linear terms scale by 1/|x| and pairs by 1/|x|^2. A row of zeros
  // stays one.
  kInstance = 1,
};

struct ModelOptions {
  ModelKind kind = ModelKind::kFm;
  int factors = 8;  // k, of an FM; in [1, kMaxFactors]. 4, 8, 16 and 32 are fastest
  Normalisation normalisation = Normalisation::kInstance;
  float init_scale = 0.2f;           // factors begin uniform in +-init_scale / sqrt(k)
  float initial_accumulator = 1.0f;  // AdaGrad's sums of squares begin here
  std::uint64_t seed = 1;            // of the factors' initial values
};

// Throws kInvalid, naming option, value and range, if one is out of range.
void check(const ModelOptions& options);

// Where things are in the state: [bias, its accumulator], then for each slot
// [weights: factors, linear weight][as many AdaGrad accumulators].
struct Layout {
  std::size_t slots = 0;
  std::size_t weights = 1;  // of one slot; the last is the linear weight

  std::size_t stride() const noexcept { return 2 * weights; }
  std::size_t row(std::size_t slot) const noexcept { return 2 + slot * stride(); }
  std::size_t size() const noexcept { return row(slots); }
  bool is_accumulator(std::size_t index) const noexcept {
    return index < 2 ? index == 1 : (index - 2) % stride() >= weights;
  }
};

class Model {
 public:
  // A fresh model of the features in `dictionary`; the same arguments give the same bits. Throws
  // kInvalid for options out of range, or a state that exceeds this machine's memory.
  Model(const ModelOptions& options, Dictionary dictionary);

  const ModelOptions& options() const noexcept { return options_; }
  const Dictionary& dictionary() const noexcept { return dictionary_; }
  const Layout& layout() const noexcept { return layout_; }

  // Ids to slots, normalisation. Entries with an id unknown to the model are left out, and counted;
  // they still count in the row's norm, as they would have with weights 0.
  Samples prepare(Dataset data) const;
  // [rows] scores; LogisticLoss::probability() makes probabilities of them. Throws kInvalid where a
  // score is not finite (unnormalised values too large).
  std::vector<float> scores(const Samples& samples) const;

  // Everything that training changes, as one array of float32 (Layout): what workers average.
  View state() noexcept { return state_; }
  std::span<float> weights() noexcept { return state_; }
  std::span<const float> weights() const noexcept { return state_; }

  // Replaces the file whole or not at all. Throws kIo.
  void save(const std::string& path) const;
  // Throws kIo; kInvalid for a file that is foreign, truncated, damaged or of a newer version.
  // The loaded model's scores are bitwise those of the saved one.
  static Model load(const std::string& path);

 private:
  ModelOptions options_;
  Dictionary dictionary_;
  Layout layout_;
  std::vector<float> state_;
};

}  // namespace motley::wide
