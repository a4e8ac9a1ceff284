#include "runtime/learning_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "comm/error.h"

namespace motley::runtime {

LearningRate::LearningRate(const LearningRateOptions& options) : options_(options) {
  for (const auto& [name, value] :
       {std::pair{"base", options.base}, std::pair{"warmup_start", options.warmup_start},
        std::pair{"step_factor", options.step_factor}, std::pair{"final", options.final},
        std::pair{"power", options.power},
        std::pair{"warmup_samples", static_cast<double>(options.warmup_samples)}}) {
    if (value >= 0 && std::isfinite(value)) continue;
    throw Error(ErrorCode::kInvalid, fmt::format("learning rate: {} is {}. Use a number from 0 "
                                                 "upwards.",
                                                 name, value));
  }
  if (options.decay == Decay::kStep && options.step_samples <= 0) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("learning rate: step_samples is {}. Use a number above 0.",
                            options.step_samples));
  }
  const bool ends = options.decay == Decay::kPolynomial || options.decay == Decay::kCosine;
  if (ends && options.total_samples <= options.warmup_samples) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("learning rate: total_samples is {}, warmup_samples {}. Let the whole "
                            "be longer than the warm-up.",
                            options.total_samples, options.warmup_samples));
  }
}

double LearningRate::at(std::int64_t samples) const {
  if (samples < 0) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("learning rate: asked for sample {}. Count from 0.", samples));
  }
  const auto done = static_cast<double>(samples);
  const auto warmup = static_cast<double>(options_.warmup_samples);
  const double base = options_.base;
  if (samples < options_.warmup_samples) {
    return options_.warmup_start + (base - options_.warmup_start) * (done / warmup);
  }
  const double last = options_.final;
  const double length = static_cast<double>(options_.total_samples) - warmup;
  switch (options_.decay) {
    case Decay::kConstant:
      return base;
    case Decay::kStep:
      return base *
             std::pow(options_.step_factor, static_cast<double>(samples / options_.step_samples));
    case Decay::kPolynomial:
      return last +
             (base - last) * std::pow(1 - std::min((done - warmup) / length, 1.0), options_.power);
    case Decay::kCosine:
      return last + (base - last) / 2 *
                        (1 + std::cos(std::numbers::pi * std::min((done - warmup) / length, 1.0)));
  }
  return base;
}

}  // namespace motley::runtime
