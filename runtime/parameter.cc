#include "runtime/parameter.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/error.h"

namespace motley::runtime {

std::size_t Shape::count() const noexcept {
  std::size_t product = 1;
  for (const std::size_t dimension : dimensions) product *= dimension;
  return product;
}

Parameters::Parameters(std::vector<Shape> shapes, DType dtype)
    : shapes_(std::move(shapes)), dtype_(dtype), offsets_{0} {
  for (const Shape& shape : shapes_) {
    if (std::count_if(shapes_.begin(), shapes_.end(),
                      [&shape](const Shape& other) { return other.name == shape.name; }) > 1) {
      throw Error(ErrorCode::kInvalid,
                  fmt::format("parameters: two are called \"{}\". Give each a name of its own.",
                              shape.name));
    }
    offsets_.push_back(offsets_.back() + shape.count());
  }
  values_.resize(count() * size_bytes(dtype));
  gradients_.resize(count() * size_bytes(dtype));
}

void Parameters::zero_gradients() noexcept {
  std::fill(gradients_.begin(), gradients_.end(), std::byte{0});
}

void Parameters::list(State& state) {
  for (std::size_t i = 0; i < shapes_.size(); ++i) {
    state.add({shapes_[i].name, shapes_[i].dimensions,
               values().slice(offsets_[i], offsets_[i + 1] - offsets_[i]), StatePolicy::kAverage});
  }
}

View Parameters::part(View all, std::string_view name) const {
  std::string names;
  for (std::size_t i = 0; i < shapes_.size(); ++i) {
    if (shapes_[i].name == name) return all.slice(offsets_[i], offsets_[i + 1] - offsets_[i]);
    names += (i == 0 ? "" : ", ") + shapes_[i].name;
  }
  throw Error(ErrorCode::kInvalid,
              fmt::format("parameters: none is called \"{}\". There are: {}.", name, names));
}

}  // namespace motley::runtime
