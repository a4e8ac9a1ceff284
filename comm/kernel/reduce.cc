#include "comm/kernel/reduce.h"

#include <cassert>

#include "comm/kernel/combine.h"
#include "comm/kernel/ops.h"

namespace motley {

void reduce(View out, ConstBytes in, ReduceOp op) {
  assert(in.size() == out.size_bytes());
  const std::byte* const sources[] = {out.data, in.data()};
  // An average is divided when all terms are there, by divide(); terms have been weighted before.
  const bool adds = op == ReduceOp::kAverage || op == ReduceOp::kWeightedSum;
  const Combine combine(out.dtype, adds ? ReduceOp::kSum : op);
  if (out.count != 0) combine(out.data, sources, 2, out.count);
}

void divide(View data, int divisor) {
  dispatch(data.dtype, [&]<class T>() {
    T* const a = reinterpret_cast<T*>(data.data);
    for (std::size_t i = 0; i < data.count; ++i) a[i] = divided(a[i], divisor);
  });
}

}  // namespace motley
