// moe/device_experts.h: expert_compute.h on device memory: products of all experts at once by
// cuBLAS, everything else by kernels of our own. Elements are float32, float16 or bfloat16, alike
// in all arrays; products are added in float32.
//
//   DeviceExpertCompute compute({.width = 512, .hidden = 2048}, DType::kBFloat16);
//   compute.reserve(saved, rows);
//   compute.forward({.slots = slots, .segments = segments, .in = x, .out = y}, saved, stream);
//   compute.backward_rows({.slots = slots, .segments = segments, .in = dy, .out = dx}, saved,
//   stream); compute.backward_weights({segments, x, dy, gradients}, saved, stream);
//
// What is computed, how a slot is laid out and what segments are is said in expert_compute.h. All
// calls put work into the stream and return. Sums of biases have one order, so that their bits are
// always the same; of products cuBLAS says it for one version on one kind of device.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/device.h"
#include "comm/view.h"
#include "moe/expert_compute.h"

namespace motley::moe {

// Rows to rows, with the parameters of each slot, all in device memory.
struct DeviceExpertRows {
  std::span<const ConstView> slots;         // [slot_count] each
  std::span<const ExpertSegment> segments;  // that do not overlap
  ConstView in;                             // [rows, d]: x, or dy
  View out;                                 // [rows, d]: y, or dx; of the segments' rows alone
};

struct DeviceExpertGradients {
  std::span<const ExpertSegment> segments;  // all of the step
  ConstView x;
  ConstView dy;
  std::span<const View> gradients;  // by slot, as its parameters; overwritten
};

// What backward needs of forward, [rows, h] each. Kept from step to step for its memory.
class DeviceExpertSaved {
 public:
  // Room for `rows` rows; waits for the device where there is not enough.
  void reserve(std::size_t rows, const ExpertShape& shape, DType dtype);

 private:
  friend class DeviceExpertCompute;
  enum Part { kHidden, kActive, kPartner, kDHidden, kDPartner, kParts };
  View part(Part which) const noexcept;

  std::optional<DeviceBuffer> memory_;
  std::size_t count_ = 0;  // of numbers in a part
  bool gated_ = false;
  DType dtype_ = DType::kFloat32;
};

class DeviceExpertCompute {
 public:
  // On the current device.
  //   bias    of each slot; empty: added in all
  //   errors  kInvalid if a size is below 1, or for another dtype; kUnavailable without cuBLAS in
  //           the build; kIo where cuBLAS fails
  DeviceExpertCompute(const ExpertShape& shape, DType dtype, std::vector<OutputBias> bias = {});
  ~DeviceExpertCompute();
  DeviceExpertCompute(DeviceExpertCompute&&) noexcept;
  DeviceExpertCompute& operator=(DeviceExpertCompute&&) noexcept;

  const ExpertShape& shape() const noexcept;

  void reserve(DeviceExpertSaved& saved, std::size_t rows) const;
  //   errors  kInvalid, before any work, for sizes or dtypes that do not fit, naming them; kIo
  void forward(const DeviceExpertRows& rows, DeviceExpertSaved& saved, StreamRef stream);
  void backward_rows(const DeviceExpertRows& rows, DeviceExpertSaved& saved, StreamRef stream);
  void backward_weights(const DeviceExpertGradients& step, DeviceExpertSaved& saved,
                        StreamRef stream);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace motley::moe
