// comm/kernel/reduce.h: the arithmetic of collectives, element by element.
#pragma once

#include "comm/device.h"
#include "comm/dtype.h"
#include "comm/view.h"

namespace motley {

// out[i] = op(out[i], in[i]); kAverage and kWeightedSum add.
//   out  [n] in host memory    in  the bytes of [n] elements of the same dtype, at any alignment
void reduce(View out, ConstBytes in, ReduceOp op);

// data[i] = data[i] / divisor: what kAverage does to the sum. Integers round toward zero.
void divide(View data, int divisor);

// The same on device memory, in stream order: out [n], in [n], data [n].
void reduce_on_device(View out, ConstView in, ReduceOp op, StreamRef stream);
void divide_on_device(View data, int divisor, StreamRef stream);

}  // namespace motley
