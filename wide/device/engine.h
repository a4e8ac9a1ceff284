// wide/device/engine.h: the engine of kernel/flow.h on a CUDA device.
//
// Batches are laid out on the host (batch.h) and copied, each from one of two pinned buffers, in a
// stream of their own, while the device works on the one before. By batches (batch_rows above 1)
// training is deterministic: the same bits every time, and those of the CPU's batches but for
// rounding. Row by row it is asynchronous: blocks share the model, hot slots are updated by tiles
// of rows.
#pragma once

#include <memory>

#include "wide/device/kernels.h"
#include "wide/kernel/flow.h"

namespace motley::wide {

// What tests choose; 0: what suits model and batch.
struct DeviceFlowOptions {
  unsigned blocks = 0;                // of each kernel's grid
  std::size_t copied_rows = 262'144;  // at a time, row by row and for scores
  bool by_feature = false;            // row by row: FlowShape::by_feature
  FlowShape shape{.tile_rows = 0};    // if it has tile_rows
};

// Throws kInvalid, naming what devices train, for a model that they do not.
void check_device_model(const ModelOptions& options, const Layout& layout);
// On the current device. Throws kUnavailable where there is none; kInvalid as above, or where the
// state does not fit in its memory.
std::unique_ptr<Flow> make_device_flow(const ModelOptions& options, const Layout& layout,
                                       const DeviceFlowOptions& flow = {});

}  // namespace motley::wide
