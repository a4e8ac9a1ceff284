// moe/device/expert_ops.h: what experts do beside products, on a device: biases, activations, their
// gradients. Starts of kernels, in stream order.
#pragma once

#include <cstdint>

#include "comm/device.h"
#include "comm/dtype.h"
#include "moe/layer_options.h"

namespace motley::moe {

// Rows of one expert, as kernels take them; in device memory.
struct DeviceSegment {
  std::size_t first = 0;
  std::size_t rows = 0;
  std::size_t slot = 0;
  const void* b1 = nullptr;
  const void* b3 = nullptr;
  const void* b2 = nullptr;  // null: added elsewhere
};

struct DeviceSegments {
  const DeviceSegment* data = nullptr;
  std::size_t count = 0;
  std::size_t most_rows = 0;  // of one
};

// [rows, columns] arrays of numbers between the linear maps.
struct DeviceHidden {
  void* hidden = nullptr;
  void* partner = nullptr;  // null in plain experts
  void* active = nullptr;
  void* dhidden = nullptr;
  void* dpartner = nullptr;
  std::size_t columns = 0;
  Activation activation = Activation::kGelu;
};

// hidden += b1, partner += b3; active = activation(hidden), times partner.
void activate_on_device(DType dtype, const DeviceSegments& segments, const DeviceHidden& hidden,
                        StreamRef stream);
// dhidden, the gradient of `active`, becomes that of `hidden`; dpartner that of `partner`.
void activation_gradient_on_device(DType dtype, const DeviceSegments& segments,
                                   const DeviceHidden& hidden, StreamRef stream);
// out [rows, columns] += b2 of each segment that adds it.
void add_output_bias_on_device(DType dtype, const DeviceSegments& segments, void* out,
                               std::size_t columns, StreamRef stream);

// The sum of all rows of a slot's segments, added in their order in float32 and rounded once.
struct DeviceColumnSum {
  const void* in = nullptr;  // [rows, columns], of all segments; null: the sum is 0
  void* out = nullptr;       // [columns]
  std::size_t columns = 0;
  std::size_t slot = 0;
};
//   sums  [count] in device memory; most_columns of one
struct DeviceColumnSums {
  const DeviceColumnSum* data = nullptr;
  std::size_t count = 0;
  std::size_t most_columns = 0;
};
void sum_columns_on_device(DType dtype, const DeviceSegments& segments,
                           const DeviceColumnSums& sums, StreamRef stream);

// Fills bytes with zeros.
void clear_on_device(void* data, std::size_t size_bytes, StreamRef stream);

}  // namespace motley::moe
