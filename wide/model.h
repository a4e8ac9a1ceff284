// wide/model.h: a wide model: what it is made of, how it scores rows, how it is kept. Start here.
//
//   Dataset data = read_file("train.txt");
//   Model model({.kind = ModelKind::kFm}, Dictionary::by_frequency(data));
//   Samples samples = model.prepare(std::move(data));
//   Evaluation e = evaluate(model.scores(samples), samples.labels);    // auc.h
//   model.save("train.model");
//
// Training goes by flow: rows and features are the two sides of a bipartite graph, an entry of the
// data set is an edge, and a model is three functions (linear.h, fm.h, ffm.h and fwfm.h have them):
//   gather   what a feature sends to a sample: its part of the sample's sum
//   score    what a sample makes of its sum
//   scatter  what a sample sends back to a feature: the gradient of the loss (loss.h) by its
//   weights
// The gradient goes through the rule of an optimizer (optimizer.h) at once. kernel/loops.h runs any
// such model over rows; a new one is a new header beside fm.h, and a case in kernel/loops_for.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/view.h"
#include "wide/dataset.h"
#include "wide/dictionary.h"
#include "wide/huge_pages.h"
#include "wide/loss.h"
#include "wide/optimizer.h"
#include "wide/samples.h"

namespace motley::wide {

enum class ModelKind : std::uint8_t {
  kLogistic = 1,  // "lr", logistic regression
  kFm = 2,        // "fm", factorization machine
  kSvm = 3,       // "svm", linear support vector machine
  kFfm = 4,       // "ffm", field-aware factorization machine
  kFwfm = 5,      // "fwfm", field-weighted factorization machine
};
const char* name(ModelKind kind) noexcept;
// Throws kInvalid, listing the names there are.
ModelKind model_kind(const std::string& name);
Loss default_loss(ModelKind kind) noexcept;
bool has_factors(ModelKind kind) noexcept;
bool has_fields(ModelKind kind) noexcept;

enum class Normalisation : std::uint8_t {
  kNone = 0,
  // Each row x becomes x / |x|, so linear terms scale by 1/|x| and pairs by 1/|x|^2. A row of zeros
  // stays one.
  kInstance = 1,
};

struct ModelOptions {
  ModelKind kind = ModelKind::kFm;
  Loss loss = Loss::kDefault;  // the kind's own
  Optimizer optimizer = Optimizer::kAdaGrad;
  int factors = 8;  // k, of models with factors; in [1, kMaxFactors]. 4, 8, 16 and 32 are fastest
  Normalisation normalisation = Normalisation::kInstance;
  // Factors begin uniform in +-init_scale / sqrt(k); those of an FFM in [0, init_scale / sqrt(k)).
  // Below 0: 0.2, for an FFM 0.66.
  float init_scale = -1;
  float initial_accumulator = 0.1f;  // AdaGrad's sums of squares begin here
  std::uint64_t seed = 1;            // of the factors' initial values
};

// Throws kInvalid, naming option, value and range, if one is out of range.
void check(const ModelOptions& options);

// Where things are in the state, in floats. A weight and what the optimizer keeps for it are
// `planes` numbers. First the weights that all samples share, plane after plane: the bias, the
// number of updates made, then an FwFM's weights of pairs of fields. Then for each slot its linear
// weight, the planes side by side; then for each slot its factors, plane after plane, at a cache
// line. An FFM's are those for field 0, field 1, …; k is filled up with zeros to `block`.
struct Layout {
  static constexpr std::size_t kBias = 0;
  static constexpr std::size_t kUpdates = 1;
  static constexpr std::size_t kPairs = 2;

  std::size_t slots = 0;
  std::size_t planes = 2;
  std::size_t fields = 0;   // of models that look at fields, else 0
  std::size_t factors = 0;  // k
  std::size_t block = 0;    // k and what fills it up: 4, 8 or a multiple of 16
  std::size_t width = 0;    // factors of a slot as stored, in one plane
  std::size_t pairs = 0;    // weights of pairs of fields
  std::size_t shared = 16;  // weights that all samples share as stored, in one plane

  static Layout of(const ModelOptions& options, std::size_t slots, std::size_t fields);

  std::size_t linear_stride() const noexcept { return planes == 3 ? 4 : planes; }
  std::size_t linear_begin() const noexcept { return shared * planes; }
  std::size_t linear(std::size_t slot) const noexcept {
    return linear_begin() + slot * linear_stride();
  }
  std::size_t factors_begin() const noexcept { return (linear(slots) + 15) / 16 * 16; }
  std::size_t factors_stride() const noexcept { return width * planes; }
  std::size_t factors_of(std::size_t slot) const noexcept {
    return factors_begin() + slot * factors_stride();
  }
  std::size_t size() const noexcept { return factors_of(slots); }
  // Whether training changes state[index] as a weight, rather than beside one or not at all.
  bool is_weight(std::size_t index) const noexcept;
};

class Model {
 public:
  // A fresh model of the features in `dictionary` and, where the kind looks at fields, of those in
  // `fields`; the same arguments give the same bits. Throws kInvalid for options out of range, or a
  // state that exceeds this machine's memory.
  Model(const ModelOptions& options, Dictionary dictionary, std::vector<std::uint32_t> fields = {});
  // A fresh model of all that `data` has.
  static Model of(const ModelOptions& options, const Dataset& data);
  // Without its state, for those who keep that elsewhere, in parts (fresh_state.h,
  // sharded_run.h): it can prepare() rows, and save() a state that it is given.
  static Model bare(const ModelOptions& options, Dictionary dictionary,
                    std::vector<std::uint32_t> fields);
  // This model with the features and fields of `data` that it lacks, as a fresh model has them;
  // what it knows stays as it is, the optimizer's numbers included. Throws kInvalid where `data`
  // was read in another way.
  Model grown(const Dataset& data) const;

  const ModelOptions& options() const noexcept { return options_; }
  const Dictionary& dictionary() const noexcept { return dictionary_; }
  std::span<const std::uint32_t> fields() const noexcept { return fields_; }  // ascending
  const Layout& layout() const noexcept { return layout_; }

  // How text becomes rows for this model: that of the data set it was made of (schema.h).
  const std::string& recipe() const noexcept { return recipe_; }
  void set_recipe(std::string recipe) { recipe_ = std::move(recipe); }
  // Added to every score: log r where training kept only a share r of the negative rows. H. He et
  // al., "Practical Lessons from Predicting Clicks on Ads at Facebook", ADKDD 2014, section 6.3.
  float offset() const noexcept { return offset_; }
  void set_offset(float offset) noexcept { offset_ = offset; }

  // Ids to slots, normalisation. Entries with an id (or, for models that look at fields, a field)
  // unknown to the model are left out, and counted; they still count in the row's norm, as they
  // would have with weights 0. Throws kInvalid if the kind wants fields and `data` has none.
  Samples prepare(Dataset data) const;
  // The same where `data` has slots for ids; distinct: is_distinct(data, slots).
  Samples prepare_slots(Dataset data, bool distinct) const;
  // [rows] scores; prediction_of() makes predictions of them. A score depends on its row and the
  // kind of processor alone. Throws kInvalid where one is not finite (values too large).
  std::vector<float> scores(const Samples& samples, int threads = 1) const;

  // Everything that training changes, as one array of float32 (Layout): what workers average.
  View state() noexcept { return std::span<float>(state_); }
  std::span<float> weights() noexcept { return state_; }
  std::span<const float> weights() const noexcept { return state_; }

  // Replaces the file whole or not at all. Throws kIo.
  void save(const std::string& path) const;
  // The same with a state of layout().size() floats that is given part by part: `write` calls what
  // it gets with each, in order.
  using PutFloats = std::function<void(std::span<const float>)>;
  void save(const std::string& path, const std::function<void(const PutFloats&)>& write) const;
  // Throws kIo; kInvalid for a file that is foreign, truncated, damaged or of a newer version.
  // The loaded model's scores are bitwise those of the saved one.
  static Model load(const std::string& path);
  // Whether the file begins as those that save() writes do.
  static bool is_saved(const std::string& path);

 private:
  struct Bare {};
  Model(Bare, const ModelOptions& options, Dictionary dictionary,
        std::vector<std::uint32_t> fields);
  template <class SlotOf>
  Samples prepared(Dataset data, SlotOf slot_of) const;

  ModelOptions options_;
  Dictionary dictionary_;
  std::vector<std::uint32_t> fields_;
  std::string recipe_;
  float offset_ = 0;
  Layout layout_;
  Floats state_;
};

}  // namespace motley::wide
