#include "comm/convert.h"

#include <cassert>
#include <cstring>

#include "comm/kernel/convert_parts.h"
#include "comm/kernel/ops.h"

namespace motley {

void convert(View out, ConstView in, double factor) {
  assert(out.count == in.count);
  if (out.count == 0) return;
  if (out.dtype == in.dtype && factor == 1) {
    if (out.data != in.data) std::memcpy(out.data, in.data, out.size_bytes());
    return;
  }
  dispatch_convert(out.dtype, in.dtype, factor, [&]<class To, class From>(auto function) {
    To* const to = out.as<To>().data();
    const From* const from = in.as<const From>().data();
    std::size_t i = 0;
    if constexpr (kIs16BitFloat<To> || kIs16BitFloat<From>) {
      const ConvertPart part = convert_part(out.dtype, in.dtype, factor);
      i = part(out.data, in.data, out.count, static_cast<float>(factor));
    }
    for (; i < out.count; ++i) to[i] = function(from[i]);
  });
}

}  // namespace motley
