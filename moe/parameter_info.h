// moe/parameter_info.h: a parameter's place in a flat array of all parameters of one thing, or of
// all their gradients.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace motley::moe {

struct ParameterInfo {
  std::string name;                // "gate", or "expert.3.w1", …
  std::vector<std::size_t> shape;  // row-major, outputs first
  std::size_t first = 0;
  std::size_t count = 0;

  std::span<double> of(std::span<double> flat) const { return flat.subspan(first, count); }
  std::span<const double> of(std::span<const double> flat) const {
    return flat.subspan(first, count);
  }
  std::span<float> of(std::span<float> flat) const { return flat.subspan(first, count); }
  std::span<const float> of(std::span<const float> flat) const {
    return flat.subspan(first, count);
  }
};

}  // namespace motley::moe
