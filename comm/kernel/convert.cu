// Device half of convert.h. Memory-bound: reads n and writes n elements.
#include "comm/convert.h"
#include "comm/kernel/ops.h"
#include "comm/kernel/packs.cuh"

namespace motley {

void convert_on_device(View out, ConstView in, StreamRef stream, double factor) {
  assert(out.count == in.count);
  if (out.dtype == in.dtype && factor == 1) {
    if (out.data != in.data) copy(out, in, stream);
    return;
  }
  dispatch_convert(out.dtype, in.dtype, factor, [&]<class To, class From>(auto function) {
    map_on_device<To, From>(out, in, function, stream);
  });
}

}  // namespace motley
