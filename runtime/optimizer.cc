#include "runtime/optimizer.h"

#include <fmt/format.h>

#include <cmath>
#include <initializer_list>
#include <utility>

#include "comm/error.h"

namespace motley::runtime {
namespace {

void check_option(const char* optimizer, const char* name, double value) {
  if (value >= 0 && std::isfinite(value)) return;
  throw Error(ErrorCode::kInvalid,
              fmt::format("{}: {} is {}. Use a number from 0 upwards.", optimizer, name, value));
}

// Calls body(T{}) for the C++ type of `dtype`.
template <class Body>
void with_type(const char* optimizer, DType dtype, Body body) {
  if (dtype == DType::kFloat32) return body(float{});
  if (dtype == DType::kFloat64) return body(double{});
  throw Error(ErrorCode::kInvalid, fmt::format("{}: parameters of {}. Use float32 or float64.",
                                               optimizer, motley::name(dtype)));
}

void check_alike(const char* optimizer, ConstView a, ConstView b) {
  if (a.count == b.count && a.dtype == b.dtype && a.memory == Memory::kHost &&
      b.memory == Memory::kHost) {
    return;
  }
  throw Error(
      ErrorCode::kInvalid,
      fmt::format("{}: {} {} parameters, but {} {} gradients or accumulators. Pass as many "
                  "of the same type, in host memory.",
                  optimizer, a.count, motley::name(a.dtype), b.count, motley::name(b.dtype)));
}

}  // namespace

Sgd::Sgd(const SgdOptions& options) : options_(options) {
  check_option("Sgd", "learning_rate", options.learning_rate);
  check_option("Sgd", "l2", options.l2);
}

void Sgd::update(View parameters, ConstView gradients) {
  check_alike("Sgd", parameters, gradients);
  with_type("Sgd", parameters.dtype, [&]<class T>(T) {
    const auto x = parameters.as<T>();
    const auto g = gradients.as<T>();
    const T rate = static_cast<T>(options_.learning_rate);
    const T l2 = static_cast<T>(options_.l2);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] -= rate * (g[i] + l2 * x[i]);
  });
}

AdaGrad::AdaGrad(ConstView parameters, const AdaGradOptions& options)
    : options_(options),
      count_(parameters.count),
      dtype_(parameters.dtype),
      accumulators_(parameters.size_bytes()) {
  for (const auto& [name, value] :
       {std::pair{"learning_rate", options.learning_rate}, std::pair{"l2", options.l2},
        std::pair{"initial_accumulator", options.initial_accumulator},
        std::pair{"epsilon", options.epsilon}}) {
    check_option("AdaGrad", name, value);
  }
  with_type("AdaGrad", dtype_, [&]<class T>(T) {
    for (T& sum : state().as<T>()) sum = static_cast<T>(options.initial_accumulator);
  });
}

View AdaGrad::state() noexcept { return {accumulators_.data(), count_, dtype_}; }

void AdaGrad::update(View parameters, ConstView gradients) {
  check_alike("AdaGrad", parameters, gradients);
  check_alike("AdaGrad", parameters, state());
  with_type("AdaGrad", dtype_, [&]<class T>(T) {
    const auto x = parameters.as<T>();
    const auto gradient = gradients.as<T>();
    const auto sums = state().as<T>();
    const T rate = static_cast<T>(options_.learning_rate);
    const T l2 = static_cast<T>(options_.l2);
    const T epsilon = static_cast<T>(options_.epsilon);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const T g = gradient[i] + l2 * x[i];
      if (g == 0) continue;  // with G = 0 and epsilon = 0 too: nothing moves
      sums[i] += g * g;
      x[i] -= rate * g / (std::sqrt(sums[i]) + epsilon);
    }
  });
}

}  // namespace motley::runtime
