// test/bench/wide_gpu/three_stage.h: the classical way to train a wide model on a device, to
// compare the flow with: product of the batch with the weights, loss, product of the transposed
// batch with what the loss says, update. Each is a kernel of its own (the third has two where slots
// have many edges), and what it leaves for the next lies in global memory.
#pragma once

#include "wide/device/kernels.h"

namespace motley::wide {

// Memory between the stages, beside what DeviceSums has.
struct Stages {
  DeviceSums sums;             // scores and all others are there
  float* gradients = nullptr;  // [segments][width] of factors, then [segments] of linear weights
};

// Updates the model by a batch that is laid out by sample and by feature, all values of a row
// alike. In sectors of 32 bytes, for n rows of m edges each, whose linear weights lie in a sectors,
// u slots whose linear weights lie in l, and q factors of four in a slot (FM: k / 4; FFM: one a
// field):
//   product     n (m (4 + 16 q) + 32 a + 16 q + 16) / 32
//   loss        n (4 + 4 + 4 + 8 + 8) / 32
//   transposed  n m (4 + 32 + 16 q) / 32 + u (16 + 32 q) / 32
//   update      u (16 + 5 * 16 q) / 32 + 2 l
// An FFM's product also asks for the edge of every 32 of its cells, 32 bytes each, and leaves q^2
// cells a row; its transposed product reads an edge's three numbers alone, once for each 32 fields
// and once for the linear weight: 96 bytes for the 36 above, so often; its update reads a slot's
// three numbers for every 32 fields, 96 bytes for 12.
void train_in_stages(const DeviceJob& job, const BatchArrays& batch, const Stages& stages,
                     double* loss, StreamRef stream);

}  // namespace motley::wide
