#include "moe/layer_options.h"

#include <fmt/format.h>

#include <cmath>

#include "comm/error.h"

namespace motley::moe {
namespace {

void require_positive(const char* option, int value) {
  if (value >= 1) return;
  throw Error(ErrorCode::kInvalid,
              fmt::format("moe layer: {} is {}. It must be at least 1.", option, value));
}

}  // namespace

void validate(const LayerOptions& options) {
  require_positive("width", options.width);
  require_positive("hidden", options.hidden);
  require_positive("experts", options.experts);
  if (options.top_k < 1 || options.top_k > options.experts) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("moe layer: top_k is {} with {} experts. It must be in [1, {}].",
                            options.top_k, options.experts, options.experts));
  }
  if (!std::isfinite(options.balance_scale) || options.balance_scale < 0) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("moe layer: balance_scale is {}. It must be finite and at least 0.",
                            options.balance_scale));
  }
}

}  // namespace motley::moe
