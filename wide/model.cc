#include "wide/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "comm/error.h"
#include "wide/file/memory_limit.h"
#include "wide/fm.h"
#include "wide/fresh_state.h"
#include "wide/kernel/flow.h"
#include "wide/option_error.h"

namespace motley::wide {

void check(const ModelOptions& options) {
  if (has_factors(options.kind) && (options.factors < 1 || options.factors > kMaxFactors)) {
    throw OptionError("model", "factors",
                      fmt::format("is {}, but must be in [1, {}]", options.factors, kMaxFactors));
  }
  if (options.optimizer == Optimizer::kGradientSum) {
    throw Error(ErrorCode::kInvalid,
                "model: the optimizer only sums up gradients. Use sgd, adagrad, ftrl or adam");
  }
  if (!std::isfinite(options.init_scale)) {
    throw OptionError("model", "init_scale",
                      fmt::format("is {}, but must be finite", options.init_scale));
  }
  if (!(options.initial_accumulator > 0) || !std::isfinite(options.initial_accumulator)) {
    throw OptionError("model", "initial_accumulator",
                      fmt::format("is {}, but must be above 0", options.initial_accumulator));
  }
}

namespace {

constexpr std::size_t kMaxFields = 65'535;

std::size_t round_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

// Bytes as text.
std::string gib(double bytes) { return fmt::format("{:.2f} GiB", bytes / (1 << 30)); }

void check_memory(const Layout& layout) {
  const double bytes = static_cast<double>(layout.size()) * sizeof(float);
  const auto memory = static_cast<double>(memory_limit());
  if (bytes <= memory) return;
  const std::string fields =
      layout.fields > 0 ? fmt::format(" and {} fields", layout.fields) : std::string();
  throw Error(ErrorCode::kInvalid,
              fmt::format("model: {} features{} with k {} need {}, but {} is the limit. "
                          "Use a smaller k, or fewer features",
                          layout.slots, fields, layout.factors, gib(bytes), gib(memory)));
}

ModelOptions resolved(ModelOptions options) {
  if (options.loss == Loss::kDefault) options.loss = default_loss(options.kind);
  if (options.init_scale < 0) options.init_scale = options.kind == ModelKind::kFfm ? 0.66f : 0.2f;
  return options;
}

}  // namespace

Loss default_loss(ModelKind kind) noexcept {
  return kind == ModelKind::kSvm ? Loss::kSquaredHinge : Loss::kLogistic;
}

bool has_factors(ModelKind kind) noexcept {
  return kind != ModelKind::kLogistic && kind != ModelKind::kSvm;
}

bool has_fields(ModelKind kind) noexcept {
  return kind == ModelKind::kFfm || kind == ModelKind::kFwfm;
}

Layout Layout::of(const ModelOptions& options, std::size_t slots, std::size_t fields) {
  Layout layout{.slots = slots,
                .planes = static_cast<std::size_t>(wide::planes(options.optimizer)),
                .fields = has_fields(options.kind) ? fields : 0};
  if (has_factors(options.kind)) {
    layout.factors = static_cast<std::size_t>(options.factors);
    layout.block = layout.factors <= 4 ? 4 : layout.factors <= 8 ? 8 : round_up(layout.factors, 16);
    layout.width =
        options.kind == ModelKind::kFfm ? round_up(fields * layout.block, 16) : layout.block;
  }
  if (options.kind == ModelKind::kFwfm) layout.pairs = fields * fields;
  layout.shared = round_up(kPairs + layout.pairs, 16);
  return layout;
}

bool Layout::is_weight(std::size_t index) const noexcept {
  if (index < linear_begin()) {
    return index == kBias || (index >= kPairs && index < kPairs + pairs);
  }
  if (index < linear(slots)) return (index - linear_begin()) % linear_stride() == 0;
  if (index < factors_begin()) return false;
  const std::size_t at = (index - factors_begin()) % factors_stride();
  return at < width && at % block < factors && (at < fields * block || width == block);
}

Model::Model(Bare /*without*/, const ModelOptions& options, Dictionary dictionary,
             std::vector<std::uint32_t> fields)
    : options_(resolved(options)), dictionary_(std::move(dictionary)), fields_(std::move(fields)) {
  check(options);
  if (fields_.size() > kMaxFields) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("model: {} fields exceed the limit of {}", fields_.size(), kMaxFields));
  }
  layout_ = Layout::of(options_, dictionary_.size(), fields_.size());
  if (layout_.fields * std::max(layout_.fields, layout_.width) > std::size_t{1} << 28) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("model: {} fields with k {} are more than this kind can have. Use a "
                            "smaller k, or fewer fields",
                            layout_.fields, layout_.factors));
  }
}

Model::Model(const ModelOptions& options, Dictionary dictionary, std::vector<std::uint32_t> fields)
    : Model(Bare{}, options, std::move(dictionary), std::move(fields)) {
  check_memory(layout_);
  state_.assign(layout_.size(), 0.0f);
  const FreshState fresh(options_, layout_);
  fresh.shared(state_.data());
  fresh.slots(0, 1, layout_, state_.data());
}

namespace {

// Those of `known` and of `data`, ascending, for models that look at them.
std::vector<std::uint32_t> fields_with(ModelKind kind, std::vector<std::uint32_t> known,
                                       const Dataset& data) {
  if (!has_fields(kind)) return {};
  known.insert(known.end(), data.fields.begin(), data.fields.end());
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  return known;
}

}  // namespace

Model Model::of(const ModelOptions& options, const Dataset& data) {
  std::vector<std::uint32_t> fields = fields_with(options.kind, {}, data);
  Model model(options, Dictionary::by_frequency(data), std::move(fields));
  model.recipe_ = data.recipe;
  return model;
}

Model Model::bare(const ModelOptions& options, Dictionary dictionary,
                  std::vector<std::uint32_t> fields) {
  return Model(Bare{}, options, std::move(dictionary), std::move(fields));
}

Model Model::grown(const Dataset& data) const {
  if (data.recipe != recipe_) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("model: it was trained on rows read as \"{}\", but these are read as "
                            "\"{}\"",
                            recipe_, data.recipe));
  }
  Model out(options_, dictionary_.grown(data), fields_with(options_.kind, fields_, data));
  out.recipe_ = recipe_;
  out.offset_ = offset_;
  std::vector<std::size_t> place(fields_.size());  // of its fields among all
  for (std::size_t f = 0; f < fields_.size(); ++f) {
    const auto at = std::lower_bound(out.fields_.begin(), out.fields_.end(), fields_[f]);
    place[f] = static_cast<std::size_t>(at - out.fields_.begin());
  }
  const Layout& from = layout_;
  const Layout& to = out.layout_;
  const auto copy = [&](std::size_t source, std::size_t n, std::size_t target) {
    std::copy_n(&state_[source], n, &out.state_[target]);
  };
  for (std::size_t plane = 0; plane < from.planes; ++plane) {
    copy(plane * from.shared, Layout::kPairs, plane * to.shared);
    for (std::size_t f = 0; f < place.size() && from.pairs > 0; ++f) {
      for (std::size_t g = 0; g < place.size(); ++g) {
        copy(plane * from.shared + Layout::kPairs + f * place.size() + g, 1,
             plane * to.shared + Layout::kPairs + place[f] * to.fields + place[g]);
      }
    }
  }
  copy(from.linear_begin(), from.slots * from.linear_stride(), to.linear_begin());
  const bool by_field = options_.kind == ModelKind::kFfm;
  for (std::size_t slot = 0; slot < from.slots && from.width > 0; ++slot) {
    for (std::size_t plane = 0; plane < from.planes; ++plane) {
      const std::size_t source = from.factors_of(slot) + plane * from.width;
      const std::size_t target = to.factors_of(slot) + plane * to.width;
      if (!by_field) copy(source, from.width, target);
      for (std::size_t f = 0; f < place.size() && by_field; ++f) {
        copy(source + f * from.block, from.block, target + place[f] * to.block);
      }
    }
  }
  return out;
}

std::vector<float> Model::scores(const Samples& samples, int threads) const {
  std::vector<float> out(samples.rows());
  make_flow(options_, layout_, {.threads = threads})->score(samples, state_, out);
  for (std::size_t r = 0; r < out.size(); ++r) {
    out[r] += offset_;
    if (std::isfinite(out[r])) continue;
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("model: the score of row {} is {}. Its values are too large; train with "
                    "instance normalisation, or scale them",
                    r + 1, out[r]));
  }
  return out;
}

}  // namespace motley::wide
