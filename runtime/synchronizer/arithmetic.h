// runtime/synchronizer/arithmetic.h: sums of models on the host. Buffers of one call have one
// floating dtype and length, and do not overlap; 16-bit floats are added in float.
#pragma once

#include <cstddef>
#include <vector>

#include "comm/view.h"

namespace motley::runtime {

// Memory for a model.
class ModelBuffer {
 public:
  ModelBuffer() = default;
  explicit ModelBuffer(ConstView model);        // a copy
  ModelBuffer(std::size_t count, DType dtype);  // zeros
  View view() noexcept { return {bytes_.data(), count_, dtype_}; }
  ConstView view() const noexcept { return {bytes_.data(), count_, dtype_}; }
  bool empty() const noexcept { return bytes_.empty() && count_ == 0; }
  std::size_t count() const noexcept { return count_; }

 private:
  std::size_t count_ = 0;
  DType dtype_ = DType::kFloat32;
  std::vector<std::byte> bytes_;
};

void copy(View to, ConstView from) noexcept;
void set_zero(View data) noexcept;
// to += factor * x
void add_scaled(View to, ConstView x, double factor);
// to += after - before
void add_change(View to, ConstView after, ConstView before);
// to = (to + x) / 2
void halve_sum(View to, ConstView x);

// Throws kInvalid unless `model` is of floats in host memory and, where `begun` is not null, of its
// dtype and length; `method` is the method's name.
void check_model(const char* method, ConstView model, const ModelBuffer* begun = nullptr);

}  // namespace motley::runtime
