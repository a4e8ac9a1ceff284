#include "wide/model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "comm/error.h"
#include "wide/fm.h"
#include "wide/kernel/flow.h"

namespace motley::wide {

void check(const ModelOptions& options) {
  if (options.kind == ModelKind::kFm && (options.factors < 1 || options.factors > kMaxFactors)) {
    throw Error(ErrorCode::kInvalid, fmt::format("model: k is {}, but must be in [1, {}]",
                                                 options.factors, kMaxFactors));
  }
  if (!(options.init_scale >= 0) || !std::isfinite(options.init_scale)) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("model: init_scale is {}, but must be at least 0", options.init_scale));
  }
  if (!(options.initial_accumulator > 0) || !std::isfinite(options.initial_accumulator)) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("model: initial_accumulator is {}, but must be above 0",
                            options.initial_accumulator));
  }
}

namespace {

// Uniform in [-1, 1): the upper 24 bits, so that every standard library gives the same.
float uniform(std::mt19937_64& random) {
  return static_cast<float>(random() >> 40) * 0x1p-23f - 1.0f;
}

}  // namespace

const char* name(ModelKind kind) noexcept { return kind == ModelKind::kLogistic ? "lr" : "fm"; }

ModelKind model_kind(const std::string& text) {
  for (const ModelKind kind : {ModelKind::kLogistic, ModelKind::kFm}) {
    if (text == name(kind)) return kind;
  }
  throw Error(ErrorCode::kInvalid, fmt::format("model: there is no \"{}\". Use lr or fm", text));
}

Model::Model(const ModelOptions& options, Dictionary dictionary)
    : options_(options), dictionary_(std::move(dictionary)) {
  check(options);
  const std::size_t k =
      options.kind == ModelKind::kFm ? static_cast<std::size_t>(options.factors) : 0;
  layout_ = {.slots = dictionary_.size(), .weights = k + 1};
  const double bytes = static_cast<double>(layout_.size()) * sizeof(float);
  const double memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  if (bytes > memory) {
    throw Error(
        ErrorCode::kInvalid,
        fmt::format(
            "model: {} features with k {} need {:.2f} GiB, but this machine has {:.2f} GiB. "
            "Use a smaller k, or fewer features",
            layout_.slots, k, bytes / (1 << 30), memory / (1 << 30)));
  }
  state_.assign(layout_.size(), 0.0f);
  state_[1] = options.initial_accumulator;
  std::mt19937_64 random(options.seed);
  const float scale = k > 0 ? options.init_scale / std::sqrt(static_cast<float>(k)) : 0.0f;
  for (std::size_t slot = 0; slot < layout_.slots; ++slot) {
    float* const row = state_.data() + layout_.row(slot);
    for (std::size_t d = 0; d < k; ++d) row[d] = scale * uniform(random);
    std::fill_n(row + layout_.weights, layout_.weights, options.initial_accumulator);
  }
}

Samples Model::prepare(Dataset data) const {
  Samples out;
  std::size_t kept = 0;
  for (std::size_t r = 0; r < data.rows(); ++r) {
    const std::size_t begin = data.row_begin[r];
    const std::size_t end = data.row_begin[r + 1];
    double squares = 0;
    for (std::size_t e = begin; e < end; ++e) {
      squares += static_cast<double>(data.values[e]) * static_cast<double>(data.values[e]);
    }
    const bool divide = options_.normalisation == Normalisation::kInstance && squares > 0;
    const double norm = divide ? std::sqrt(squares) : 1.0;
    data.row_begin[r] = kept;  // its old value was last needed as this row's begin
    for (std::size_t e = begin; e < end; ++e) {
      const std::uint32_t slot = dictionary_.slot(data.ids[e]);
      if (slot == Dictionary::kUnknown) continue;
      data.ids[kept] = slot;
      data.values[kept] = static_cast<float>(static_cast<double>(data.values[e]) / norm);
      ++kept;
    }
  }
  out.unknown_entries = data.entries() - kept;
  data.row_begin.back() = kept;
  data.ids.resize(kept);
  data.values.resize(kept);
  out.row_begin = std::move(data.row_begin);
  out.labels = std::move(data.labels);
  out.slots = std::move(data.ids);
  out.values = std::move(data.values);
  return out;
}

std::vector<float> Model::scores(const Samples& samples) const {
  std::vector<float> out(samples.rows());
  make_flow(options_, layout_)->score(samples, state_, out);
  for (std::size_t r = 0; r < out.size(); ++r) {
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
