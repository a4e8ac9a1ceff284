// runtime/parameter.h: the parameters of a model and their gradients, named and shaped, in two
// contiguous buffers: what is averaged or updated at once is one View.
//
//   Parameters model({{"weight", {256, 64}}, {"bias", {64}}}, DType::kFloat32);
//   std::span<float> bias = model.values("bias").as<float>();
//   comm.all_reduce(model.gradients(), ReduceOp::kAverage).wait();
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "comm/view.h"
#include "runtime/state.h"

namespace motley::runtime {

struct Shape {
  std::string name;
  std::vector<std::size_t> dimensions;  // none: one element

  std::size_t count() const noexcept;
};

class Parameters {
 public:
  // Values and gradients are 0. Throws kInvalid for two shapes of one name.
  Parameters(std::vector<Shape> shapes, DType dtype);

  const std::vector<Shape>& shapes() const noexcept { return shapes_; }
  DType dtype() const noexcept { return dtype_; }
  std::size_t count() const noexcept { return offsets_.back(); }

  // [count()], in the order of shapes(). Valid as long as this object is neither moved nor gone.
  View values() noexcept { return {values_.data(), count(), dtype_}; }
  View gradients() noexcept { return {gradients_.data(), count(), dtype_}; }
  // Those of one shape, row-major. Throws kInvalid, listing the names there are.
  View values(std::string_view name) { return part(values(), name); }
  View gradients(std::string_view name) { return part(gradients(), name); }

  void zero_gradients() noexcept;

  // Adds the values, one item a shape, averaged.
  void list(State& state);

 private:
  View part(View all, std::string_view name) const;

  std::vector<Shape> shapes_;
  DType dtype_;
  std::vector<std::size_t> offsets_;  // of each shape, and the end
  std::vector<std::byte> values_;
  std::vector<std::byte> gradients_;
};

}  // namespace motley::runtime
