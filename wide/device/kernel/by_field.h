// wide/device/kernel/by_field.h: what kernels.h promises, for models that look at fields (FFM).
#pragma once

#include "wide/device/kernels.h"

namespace motley::wide {

void forward_by_field(const DeviceJob& job, const BatchArrays& batch, const DeviceSums& sums,
                      StreamRef stream, unsigned blocks);
void update_by_field(const DeviceJob& job, const BatchArrays& batch, const DeviceSums& sums,
                     StreamRef stream, unsigned blocks);
// Of a block's shared memory, beside its hot slots.
std::size_t flow_floats(std::uint32_t fields) noexcept;
void flow_by_field(const DeviceJob& job, const BatchArrays& batch, const FlowShape& shape,
                   double* loss, StreamRef stream);

}  // namespace motley::wide
