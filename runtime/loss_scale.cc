#include "runtime/loss_scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "comm/convert.h"
#include "comm/error.h"
#include "runtime/gradient.h"

namespace motley::runtime {
namespace {

void check(bool fits, const char* option, double value, const char* range) {
  if (fits && std::isfinite(value)) return;
  throw Error(ErrorCode::kInvalid,
              fmt::format("loss scale: {} is {}. Use a number {}.", option, value, range));
}

}  // namespace

LossScale::LossScale(const LossScaleOptions& options) : options_(options), value_(options.initial) {
  check(options.least > 0, "least", options.least, "above 0");
  check(options.most >= options.least, "most", options.most, "from least upwards");
  check(options.initial >= options.least && options.initial <= options.most, "initial",
        options.initial, "from least to most");
  check(options.growth >= 1, "growth", options.growth, "from 1 upwards");
  check(options.backoff > 0 && options.backoff < 1, "backoff", options.backoff, "above 0, below 1");
  check(options.growth_interval >= 0, "growth_interval",
        static_cast<double>(options.growth_interval), "from 0 upwards");
}

void LossScale::update(bool finite) noexcept {
  if (options_.growth_interval == 0) return;
  if (!finite) {
    value_ = std::max(value_ * options_.backoff, options_.least);
    finite_steps_ = 0;
  } else if (++finite_steps_ == options_.growth_interval) {
    value_ = std::min(value_ * options_.growth, options_.most);
    finite_steps_ = 0;
  }
}

void LossScale::list(State& state) {
  state.add("loss_scale.value", value_, StatePolicy::kMaximum);
  state.add("loss_scale.finite_steps", finite_steps_, StatePolicy::kMaximum);
}

MixedPrecision::MixedPrecision(View master, DType dtype, const LossScaleOptions& options)
    : master_(master),
      dtype_(dtype),
      scale_(options),
      values_(master.count * size_bytes(dtype)),
      gradients_(values_.size()) {
  if (master.dtype != DType::kFloat32 || size_bytes(dtype) != 2 || !is_floating(dtype)) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("mixed precision: master parameters of {}, copies of {}. Use float32, "
                            "and float16 or bfloat16.",
                            name(master.dtype), name(dtype)));
  }
  refresh();
}

bool MixedPrecision::unscale(View out, ConstView gradients) {
  if (out.count != master_.count || out.dtype != DType::kFloat32 || gradients.count != out.count) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("mixed precision: {} float32 master parameters, but {} {} gradients to "
                            "write to, from {}. Pass as many, of float32.",
                            master_.count, out.count, name(out.dtype), gradients.count));
  }
  const double scale = scale_.value();
  const bool finite = all_finite(gradients);
  scale_.update(finite);
  if (finite) {
    convert(out, gradients, 1 / scale);  // in float32: in 16 bits small ones would be 0 again
  } else {
    ++skipped_;
  }
  return finite;
}

void MixedPrecision::refresh() { convert(values(), master_); }

void MixedPrecision::list(State& state) {
  scale_.list(state);
  state.add("loss_scale.skipped", skipped_, StatePolicy::kMaximum);
}

}  // namespace motley::runtime
