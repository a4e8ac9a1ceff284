// test/runtime/line_fit.h: a linear regression, as small a model as there is, in every floating
// type.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/dtype.h"
#include "runtime/parameter.h"

namespace motley::runtime {

constexpr std::int64_t kSamples = 90;
constexpr std::size_t kFeatures = 3;

// Sample i of a linear regression: y = x . {1, -2, 0.5} + 0.25.
inline std::vector<double> features(std::int64_t i) {
  const auto u = static_cast<double>(i);
  return {std::sin(u), std::cos(1.7 * u), std::sin(0.3 * u + 1)};
}
inline double target(std::int64_t i) {
  const std::vector<double> x = features(i);
  return x[0] - 2 * x[1] + 0.5 * x[2] + 0.25;
}

inline Parameters line(DType dtype) {
  return Parameters({{"weight", {kFeatures}}, {"bias", {}}}, dtype);
}

// Adds weight times the gradient of the mean of (prediction - y)^2 / 2; returns that mean.
template <class T>
double backward(std::span<const std::int64_t> samples, std::span<const T> w, std::span<T> g,
                double weight) {
  double loss = 0;
  std::vector<double> sums(kFeatures + 1);
  for (const std::int64_t i : samples) {
    const std::vector<double> x = features(i);
    double error = static_cast<float>(w[kFeatures]) - target(i);
    for (std::size_t j = 0; j < kFeatures; ++j) error += x[j] * static_cast<float>(w[j]);
    for (std::size_t j = 0; j < kFeatures; ++j) sums[j] += error * x[j];
    sums[kFeatures] += error;
    loss += error * error / 2;
  }
  const auto n = static_cast<double>(samples.size());
  for (std::size_t j = 0; j <= kFeatures; ++j)
    g[j] = T(static_cast<float>(static_cast<float>(g[j]) + weight * sums[j] / n));
  return loss / n;
}
template <>
inline double backward<double>(std::span<const std::int64_t> samples, std::span<const double> w,
                               std::span<double> g, double weight) {
  double loss = 0;
  const auto n = static_cast<double>(samples.size());
  for (const std::int64_t i : samples) {
    const std::vector<double> x = features(i);
    double error = w[kFeatures] - target(i);
    for (std::size_t j = 0; j < kFeatures; ++j) error += x[j] * w[j];
    for (std::size_t j = 0; j < kFeatures; ++j) g[j] += weight / n * error * x[j];
    g[kFeatures] += weight / n * error;
    loss += error * error / 2;
  }
  return loss / n;
}

// The same of a dtype, into views.
inline double backward(std::span<const std::int64_t> samples, ConstView w, View g, double weight) {
  switch (g.dtype) {
    case DType::kFloat16:
      return backward<half>(samples, w.as<const half>(), g.as<half>(), weight);
    case DType::kBFloat16:
      return backward<bfloat16>(samples, w.as<const bfloat16>(), g.as<bfloat16>(), weight);
    case DType::kFloat32:
      return backward<float>(samples, w.as<const float>(), g.as<float>(), weight);
    default:
      return backward<double>(samples, w.as<const double>(), g.as<double>(), weight);
  }
}

}  // namespace motley::runtime
