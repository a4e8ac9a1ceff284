// wide/device/kernel/by_field.h: what kernels.h promises, for models that look at fields: FFM
// (by_field) and FwFM (weighted).
#pragma once

#include "wide/device/kernels.h"

namespace motley::wide {

void forward_by_field(const DeviceJob& job, const BatchArrays& batch, const DeviceSums& sums,
                      StreamRef stream, unsigned blocks);
void forward_weighted(const DeviceJob& job, const BatchArrays& batch, const DeviceSums& sums,
                      StreamRef stream, unsigned blocks);
void update_by_field(const DeviceJob& job, const BatchArrays& batch, const DeviceSums& sums,
                     StreamRef stream, unsigned blocks);
// Updates the weights of pairs of fields.
void update_pairs(const DeviceJob& job, std::uint32_t rows, const DeviceSums& sums,
                  StreamRef stream);
// Of a block's shared memory, beside its hot slots.
std::size_t flow_floats_by_field(const DeviceState& state) noexcept;
std::size_t flow_floats_weighted(const DeviceState& state) noexcept;
void flow_by_field(const DeviceJob& job, const BatchArrays& batch, const FlowShape& shape,
                   double* loss, StreamRef stream);
void flow_weighted(const DeviceJob& job, const BatchArrays& batch, const FlowShape& shape,
                   double* loss, StreamRef stream);

}  // namespace motley::wide
