#include "wide/model_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cfloat>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/error.h"
#include "wide/file/whole_file.h"
#include "wide/fm.h"
#include "wide/read/input.h"
#include "wide/read/number.h"
#include "wide/read/pieces.h"
#include "wide/schema.h"

namespace motley::wide {
namespace {

constexpr std::string_view kFirstLine = "motley-wide-text 1";

// Lines of a file as words between blanks.
class Words {
 public:
  explicit Words(const std::string& path) : input_(path), pieces_(input_) {}

  // The next line that is not blank; false at the end.
  bool next() {
    for (;;) {
      if (text_.empty() && (text_ = pieces_.next(buffer_)).empty()) return false;
      line_text_ = text_.substr(0, text_.find('\n'));
      text_.remove_prefix(line_text_.size() + 1);
      ++line_;
      words_.clear();
      std::size_t at = 0;
      while ((at = line_text_.find_first_not_of(" \t\r", at)) != std::string_view::npos) {
        const std::size_t end = std::min(line_text_.find_first_of(" \t\r", at), line_text_.size());
        words_.push_back(line_text_.substr(at, end - at));
        at = end;
      }
      if (!words_.empty()) return true;
    }
  }
  std::string_view line() const { return line_text_; }
  std::size_t size() const { return words_.size(); }
  std::string_view operator[](std::size_t i) const {
    if (i >= words_.size()) fail("ends too early");
    return words_[i];
  }
  float number(std::size_t i) const {
    const std::string_view word = (*this)[i];
    double value = 0;
    if (parse_number(word.data(), word.data() + word.size(), value) != Number::kOk ||
        std::abs(value) > FLT_MAX) {
      fail(fmt::format("{} is no finite number", quoted(word)));
    }
    return static_cast<float>(value);
  }
  std::uint32_t index(std::string_view word) const {
    std::uint32_t value = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc{} || stop != word.data() + word.size()) {
      fail(fmt::format("{} is no whole number below 2^32", quoted(word)));
    }
    return value;
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorCode::kInvalid, fmt::format("{}:{}: {}", input_.name(), line_, what));
  }

 private:
  Input input_;
  Pieces pieces_;
  std::string buffer_;
  std::string_view text_;  // not yet read
  std::string_view line_text_;
  std::vector<std::string_view> words_;
  std::uint64_t line_ = 0;
};

// What a text says, before it is a model.
struct Parsed {
  ModelOptions options;
  std::string recipe;
  float offset = 0;
  float bias = 0;
  std::vector<std::uint32_t> fields;
  std::vector<std::uint32_t> ids;
  std::vector<float> linear;   // [ids]
  std::vector<float> factors;  // [ids][fields of ffm, else 1][k]
  struct Pair {
    std::uint32_t f, g;
    float weight;
  };
  std::vector<Pair> pairs;

  std::size_t factors_of_id() const {
    if (!has_factors(options.kind)) return 0;
    const std::size_t k = static_cast<std::size_t>(options.factors);
    return options.kind == ModelKind::kFfm ? k * fields.size() : k;
  }
};

void parse_head(Words& words, Parsed& out) {
  const std::string_view what = words[0];
  const auto word = [&] { return std::string(words[1]); };
  if (what == "kind") {
    out.options.kind = model_kind(word());
  } else if (what == "loss") {
    out.options.loss = loss_kind(word());
  } else if (what == "normalisation") {
    if (word() != "instance" && word() != "none") words.fail("normalisation is instance or none");
    out.options.normalisation =
        word() == "instance" ? Normalisation::kInstance : Normalisation::kNone;
  } else if (what == "k") {
    const std::uint32_t k = words.index(words[1]);
    if (k < 1 || k > kMaxFactors) words.fail(fmt::format("k is {}, but must be in [1, 256]", k));
    out.options.factors = static_cast<int>(k);
  } else if (what == "offset") {
    out.offset = words.number(1);
  } else if (what == "bias") {
    out.bias = words.number(1);
  } else if (what == "recipe") {
    if (words.size() < 2) words.fail("ends too early");
    out.recipe = words.line().substr(words.line().find("recipe") + 7);
    from_recipe(out.recipe);
  } else if (what == "fields") {
    for (std::size_t i = 1; i < words.size(); ++i) out.fields.push_back(words.index(words[i]));
    if (!std::is_sorted(out.fields.begin(), out.fields.end())) words.fail("fields must ascend");
  } else if (what == "pair") {
    out.pairs.push_back({words.index(words[1]), words.index(words[2]), words.number(3)});
  } else {
    words.fail(fmt::format("{} is none of the words of a model", quoted(what)));
  }
}

Parsed parse_ours(Words& words) {
  Parsed out;
  while (words.next()) {
    if (words[0] != "feature") {
      if (!out.ids.empty()) words.fail("stands behind the first feature");
      parse_head(words, out);
      continue;
    }
    const std::size_t n = out.factors_of_id();
    if (words.size() < 3 || words.size() != 3 + n) {
      words.fail(fmt::format("has {} numbers behind the id, but {} are expected",
                             std::max<std::size_t>(words.size(), 2) - 2, 1 + n));
    }
    out.ids.push_back(words.index(words[1]));
    out.linear.push_back(words.number(2));
    for (std::size_t i = 0; i < n; ++i) out.factors.push_back(words.number(3 + i));
  }
  return out;
}

// "n 5", "m 3", "k 4", "normalization 1", then "wJ,F FACTORS" for each J and F in turn.
Parsed parse_libffm(Words& words) {
  Parsed out;
  out.options.kind = ModelKind::kFfm;
  std::map<std::string, std::uint32_t, std::less<>> head;
  for (const char* what : {"n", "m", "k", "normalization"}) {
    if (words[0] != what) words.fail(fmt::format("expected \"{}\", as libffm writes it", what));
    head[what] = words.index(words[1]);
    if (!words.next()) words.fail("ends too early: it was truncated");
  }
  if (head["k"] < 1 || head["k"] > kMaxFactors || head["m"] < 1 || head["m"] > 65'535) {
    words.fail(fmt::format("has {} fields and k {}, which is out of range", head["m"], head["k"]));
  }
  out.options.factors = static_cast<int>(head["k"]);
  out.options.normalisation =
      head["normalization"] != 0 ? Normalisation::kInstance : Normalisation::kNone;
  for (std::uint32_t f = 0; f < head["m"]; ++f) out.fields.push_back(f);
  bool more = true;
  for (std::uint32_t id = 0; id < head["n"]; ++id) {
    out.ids.push_back(id);
    out.linear.push_back(0);
    for (std::uint32_t f = 0; f < head["m"]; ++f) {
      if (!more) words.fail("ends too early: it was truncated");
      if (words[0] != fmt::format("w{},{}", id, f) || words.size() != 1 + head["k"]) {
        words.fail(fmt::format("expected w{},{} and {} numbers", id, f, head["k"]));
      }
      for (std::size_t d = 0; d < head["k"]; ++d) out.factors.push_back(words.number(1 + d));
      more = words.next();
    }
  }
  if (more) words.fail("goes on behind its last feature");
  return out;
}

// "bias: B", "i_J: W" for each J; then "v_J: FACTORS" of an FM or "v_J_F: FACTORS" of an FFM.
Parsed parse_xlearn(Words& words, Normalisation normalisation) {
  Parsed out;
  std::size_t k = 0;
  std::size_t vectors = 0;
  std::uint32_t fields = 0;
  bool by_field = false;
  do {
    std::string_view key = words[0];
    if (!key.ends_with(':')) words.fail(fmt::format("{} does not end with ':'", quoted(key)));
    key.remove_suffix(1);
    if (key == "bias") {
      out.bias = words.number(1);
    } else if (key.starts_with("i_")) {
      if (words.index(key.substr(2)) != out.ids.size()) words.fail("features must come in order");
      out.ids.push_back(static_cast<std::uint32_t>(out.ids.size()));
      out.linear.push_back(words.number(1));
    } else if (key.starts_with("v_")) {
      const std::size_t split = key.find('_', 2);
      if (vectors == 0) {
        k = words.size() - 1;
        by_field = split != std::string_view::npos;
      }
      if (words.size() - 1 != k || k < 1 || k > kMaxFactors) {
        words.fail(fmt::format("has {} factors, but {} are expected", words.size() - 1, k));
      }
      const std::uint32_t field =
          by_field ? words.index(key.substr(std::min(split, key.size() - 1) + 1)) : 0;
      if (field == fields && field < 65'535) ++fields;  // of the first feature
      const std::size_t expected = vectors++;
      if (fields == 0 || words.index(key.substr(2, split - 2)) != expected / fields ||
          field != expected % fields) {
        words.fail("features and fields must come in order");
      }
      for (std::size_t d = 0; d < k; ++d) out.factors.push_back(words.number(1 + d));
    } else {
      words.fail(fmt::format("{} is none of the words of an xLearn model", quoted(words[0])));
    }
  } while (words.next());
  out.options.kind = vectors == 0 ? ModelKind::kLogistic
                     : by_field   ? ModelKind::kFfm
                                  : ModelKind::kFm;
  if (vectors != 0) out.options.factors = static_cast<int>(k);
  for (std::uint32_t f = 0; f < fields && by_field; ++f) out.fields.push_back(f);
  if (vectors != 0 && vectors != out.ids.size() * fields) {
    words.fail(fmt::format("ends after {} of {} vectors: it was truncated", vectors,
                           out.ids.size() * fields));
  }
  if (out.options.kind == ModelKind::kFm && normalisation == Normalisation::kInstance) {
    words.fail(
        "xLearn scales pairs of an FM by 1/|x|^4, which no formula here does. Train it with "
        "--no-norm, and say --nonormalise");
  }
  out.options.normalisation =
      out.options.kind == ModelKind::kFfm ? normalisation : Normalisation::kNone;
  return out;
}

Model model_of(const Parsed& parsed) {
  Model model(parsed.options, Dictionary(parsed.ids), parsed.fields);
  const Layout& layout = model.layout();
  const std::span<float> state = model.weights();
  state[Layout::kBias] = parsed.bias;
  const auto k = static_cast<std::size_t>(parsed.options.factors);
  const std::size_t n = parsed.factors_of_id();
  if (n * parsed.ids.size() != parsed.factors.size()) {
    throw Error(ErrorCode::kInvalid,
                "model: not every feature has as many factors as the fields say");
  }
  for (std::size_t slot = 0; slot < parsed.ids.size(); ++slot) {
    state[layout.linear(slot)] = parsed.linear[slot];
    for (std::size_t i = 0; i < n; ++i) {
      state[layout.factors_of(slot) + i / k * layout.block + i % k] = parsed.factors[slot * n + i];
    }
  }
  const auto place = [&](std::uint32_t field) {
    const auto at = std::lower_bound(parsed.fields.begin(), parsed.fields.end(), field);
    if (at == parsed.fields.end() || *at != field || layout.pairs == 0) {
      throw Error(ErrorCode::kInvalid, fmt::format("model: a pair names field {}, which the model "
                                                   "does not have",
                                                   field));
    }
    return static_cast<std::size_t>(at - parsed.fields.begin());
  };
  for (const auto& [f, g, weight] : parsed.pairs) {
    state[Layout::kPairs + place(std::min(f, g)) * layout.fields + place(std::max(f, g))] = weight;
  }
  model.set_offset(parsed.offset);
  model.set_recipe(parsed.recipe);
  return model;
}

std::string feature_line(const Model& model, std::size_t slot) {
  const Layout& layout = model.layout();
  const std::span<const float> state = model.weights();
  std::string line =
      fmt::format("feature {} {}", model.dictionary().ids()[slot], state[layout.linear(slot)]);
  const std::size_t blocks = model.options().kind == ModelKind::kFfm ? layout.fields
                             : layout.width > 0                      ? 1
                                                                     : 0;
  for (std::size_t block = 0; block < blocks; ++block) {
    for (std::size_t d = 0; d < layout.factors; ++d) {
      line += fmt::format(" {}", state[layout.factors_of(slot) + block * layout.block + d]);
    }
  }
  return line + '\n';
}

}  // namespace

void save_text(const Model& model, const std::string& path) {
  WholeFile file(path);
  const ModelOptions& o = model.options();
  const Layout& layout = model.layout();
  const std::span<const float> state = model.weights();
  file.put(fmt::format("{}\nkind {}\nloss {}\nnormalisation {}\nk {}\noffset {}\nbias {}\n",
                       kFirstLine, name(o.kind), name(o.loss),
                       o.normalisation == Normalisation::kInstance ? "instance" : "none", o.factors,
                       model.offset(), state[Layout::kBias]));
  if (!model.recipe().empty()) file.put("recipe " + model.recipe() + "\n");
  if (!model.fields().empty()) {
    std::string fields = "fields";
    for (const std::uint32_t field : model.fields()) fields += fmt::format(" {}", field);
    file.put(fields + "\n");
  }
  for (std::size_t f = 0; f < layout.fields && layout.pairs > 0; ++f) {
    for (std::size_t g = f; g < layout.fields; ++g) {
      file.put(fmt::format("pair {} {} {}\n", model.fields()[f], model.fields()[g],
                           state[Layout::kPairs + f * layout.fields + g]));
    }
  }
  for (std::size_t slot = 0; slot < layout.slots; ++slot) file.put(feature_line(model, slot));
  file.commit();
}

bool is_model_text(const std::string& path) {
  const OpenFile file(std::fopen(path.c_str(), "rb"));
  char start[32] = {};
  if (file == nullptr) return false;
  const std::string_view text(start, std::fread(start, 1, sizeof start, file.get()));
  return text.starts_with(kFirstLine) || text.starts_with("bias:") || text.starts_with("i_0:") ||
         (text.starts_with("n ") && text.find("\nm ") != std::string_view::npos);
}

Model load_text(const std::string& path, Normalisation normalisation) {
  Words words(path);
  if (!words.next()) words.fail("holds no model");
  if (words.line() == kFirstLine) return model_of(parse_ours(words));
  if (words[0] == "n") return model_of(parse_libffm(words));
  if (words[0] == "bias:" || words[0] == "i_0:") {
    return model_of(parse_xlearn(words, normalisation));
  }
  words.fail("is no model as text: it begins as neither ours, nor xLearn's, nor libffm's");
}

}  // namespace motley::wide
