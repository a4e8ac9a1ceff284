#include "runtime/gradient.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "comm/convert.h"
#include "comm/error.h"
#include "runtime/numeric/types.h"

namespace motley::runtime {

bool all_finite(ConstView values) {
  bool finite = true;
  with_floating("all_finite", values.dtype, [&]<class T>(T) {
    finite = std::ranges::all_of(
        values.as<const T>(), [](T value) { return std::isfinite(static_cast<Wide<T>>(value)); });
  });
  return finite;
}

Clipped clip_by_global_norm(std::span<const View> buckets, double max_norm) {
  if (!(max_norm > 0) || !std::isfinite(max_norm)) {
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("clip_by_global_norm: max_norm is {}. Use a finite number above 0.", max_norm));
  }
  double squares = 0;
  for (const View& bucket : buckets) {
    with_floating("clip_by_global_norm", bucket.dtype, [&]<class T>(T) {
      for (const T value : bucket.as<T>()) {
        const auto wide = static_cast<double>(static_cast<Wide<T>>(value));
        squares += wide * wide;
      }
    });
  }
  Clipped clipped{.norm = std::sqrt(squares), .finite = std::isfinite(squares)};
  if (!clipped.finite || clipped.norm <= max_norm) return clipped;
  clipped.scaled = true;
  for (const View& bucket : buckets) convert(bucket, bucket, max_norm / clipped.norm);
  return clipped;
}

GradientAccumulator::GradientAccumulator(ConstView gradients)
    : count_(gradients.count),
      dtype_(gradients.dtype),
      sum_dtype_(gradients.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32),
      sums_(count_ * size_bytes(sum_dtype_)) {
  with_floating("gradient accumulator", dtype_, [](auto) {});
}

void GradientAccumulator::add(ConstView gradients, std::int64_t samples) {
  if (gradients.count != count_ || gradients.dtype != dtype_) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("gradient accumulator: made for {} {} gradients, but given {} {}. Pass "
                            "as many of the same type.",
                            count_, name(dtype_), gradients.count, name(gradients.dtype)));
  }
  if (samples <= 0) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("gradient accumulator: a micro-batch of {} samples. Leave out what has "
                            "none.",
                            samples));
  }
  with_floating("gradient accumulator", dtype_, [&]<class T>(T) {
    const auto sums = this->sums().template as<Wide<T>>();
    const auto values = gradients.as<const T>();
    const auto weight = static_cast<Wide<T>>(samples);
    for (std::size_t i = 0; i < values.size(); ++i) {
      sums[i] += weight * static_cast<Wide<T>>(values[i]);
    }
  });
  samples_ += samples;
}

void GradientAccumulator::mean(View out) {
  if (samples_ == 0) {
    throw Error(ErrorCode::kInvalid, "gradient accumulator: no micro-batch was added. Add one.");
  }
  if (out.count != count_ || (out.dtype != dtype_ && out.dtype != sum_dtype_)) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("gradient accumulator: {} {} sums, but {} {} to write to. Pass as "
                            "many of this type.",
                            count_, name(sum_dtype_), out.count, name(out.dtype)));
  }
  with_floating("gradient accumulator", sum_dtype_, [&]<class T>(T) {
    if constexpr (std::is_floating_point_v<T>) {
      for (T& sum : sums().template as<T>()) sum /= static_cast<T>(samples_);
    }
  });
  convert(out, sums());
  std::ranges::fill(sums_, std::byte{0});
  samples_ = 0;
}

}  // namespace motley::runtime
