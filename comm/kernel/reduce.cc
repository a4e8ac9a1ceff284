#include "comm/kernel/reduce.h"

#include <cassert>
#include <cstring>

#include "comm/kernel/ops.h"

namespace motley {

void reduce(View out, ConstBytes in, ReduceOp op) {
  assert(in.size() == out.size_bytes());
  dispatch(out.dtype, op, [&]<class T>(auto op_fn) {
    T* const a = reinterpret_cast<T*>(out.data);
    const std::byte* const b = in.data();
    for (std::size_t i = 0; i < out.count; ++i) {
      T x;
      std::memcpy(&x, b + i * sizeof(T), sizeof(T));  // a message need not be aligned for T
      a[i] = op_fn(a[i], x);
    }
  });
}

void divide(View data, int divisor) {
  dispatch(data.dtype, [&]<class T>() {
    T* const a = reinterpret_cast<T*>(data.data);
    for (std::size_t i = 0; i < data.count; ++i) a[i] = divided(a[i], divisor);
  });
}

}  // namespace motley
