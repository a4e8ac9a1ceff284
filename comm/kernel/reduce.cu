// Device half of reduce.h. Memory-bound: reduce reads 2n and writes n elements, no reuse.
#include "comm/kernel/combine.h"
#include "comm/kernel/ops.h"
#include "comm/kernel/packs.cuh"
#include "comm/kernel/reduce.h"

namespace motley {

void reduce_on_device(View out, ConstView in, ReduceOp op, StreamRef stream) {
  const ConstView both[] = {out, in};
  const bool adds = op == ReduceOp::kAverage || op == ReduceOp::kWeightedSum;
  combine_on_device(out, both, adds ? ReduceOp::kSum : op, stream);
}

void divide_on_device(View data, int divisor, StreamRef stream) {
  dispatch(data.dtype,
           [&]<class T>() { map_on_device<T, T>(data, data, Divided{divisor}, stream); });
}

}  // namespace motley
