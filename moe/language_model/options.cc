#include "moe/language_model/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "comm/error.h"
#include "moe/layer_options.h"

namespace motley::moe {
namespace {

LayerOptions layer_of(const LanguageModelOptions& options) {
  return {.width = options.width,
          .hidden = options.hidden,
          .experts = options.experts,
          .top_k = options.top_k,
          .activation = options.activation};
}

}  // namespace

GateOptions gate_of(const LanguageModelOptions& options) {
  return {.width = options.width,
          .experts = options.experts,
          .top_k = options.top_k,
          .normalize = GateNormalize::kChosen,
          .losses = {.first_choice = options.balance_scale}};
}

ExpertLayerOptions experts_of(const LanguageModelOptions& options) {
  return {
      .shape = {.width = options.width, .hidden = options.hidden, .activation = options.activation},
      .exchange = {.degree = options.degree,
                   .piece_rows = std::numeric_limits<std::size_t>::max()}};
}

void validate(const LanguageModelOptions& options) {
  const auto need = [](bool good, const char* what, int value, const char* rule) {
    if (good) return;
    throw Error(ErrorCode::kInvalid,
                fmt::format("language model: {} is {}. Take {}.", what, value, rule));
  };
  need(options.vocabulary >= 2 && options.vocabulary <= 65536, "vocabulary", options.vocabulary,
       "2 to 65536 characters");
  need(options.layers >= 1, "layers", options.layers, "at least 1");
  need(options.length >= 1, "length", options.length, "at least 1");
  need(options.heads >= 1 && options.width % std::max(options.heads, 1) == 0, "heads",
       options.heads, "a divisor of width");
  need(options.pieces >= 1 && std::has_single_bit(static_cast<unsigned>(options.pieces)), "pieces",
       options.pieces, "a power of two");
  need(options.batch >= 1 && options.batch % std::max(options.pieces, 1) == 0, "batch",
       options.batch, "a multiple of pieces");
  need(options.batch <= std::numeric_limits<int>::max() / std::max(options.length, 1), "batch",
       options.batch, "fewer than 2^31 characters of length in all");
  need(options.degree >= 1 && options.degree <= 8, "degree", options.degree, "1 to 8 chunks");
  need(options.warmup >= 0, "warmup", options.warmup, "0 steps or more");
  if (!std::isfinite(options.learning_rate) || options.learning_rate < 0) {
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("language model: learning_rate is {}. Take a finite one from 0 upwards.",
                    options.learning_rate));
  }
  validate(layer_of(options));
  validate(gate_of(options));
}

}  // namespace motley::moe
