#include "comm/kernel/convert.h"

#include <cassert>
#include <cstring>
#include <type_traits>

#include "comm/kernel/ops.h"

namespace motley {
namespace {

template <class To, class From>
void convert_all(View out, ConstView in, double factor) {
  using A = typename Arithmetic<From>::type;
  To* const to = reinterpret_cast<To*>(out.data);
  const From* const from = reinterpret_cast<const From*>(in.data);
  if (factor == 1) {
    for (std::size_t i = 0; i < out.count; ++i) to[i] = static_cast<To>(static_cast<A>(from[i]));
    return;
  }
  const A scale = static_cast<A>(factor);
  for (std::size_t i = 0; i < out.count; ++i) {
    to[i] = static_cast<To>(scale * static_cast<A>(from[i]));
  }
}

}  // namespace

void convert(View out, ConstView in, double factor) {
  assert(out.count == in.count);
  if (out.count == 0) return;
  if (out.dtype == in.dtype && factor == 1) {
    if (out.data != in.data) std::memcpy(out.data, in.data, out.size_bytes());
    return;
  }
  dispatch(in.dtype, [&]<class From>() {
    if (out.dtype == in.dtype) return convert_all<From, From>(out, in, factor);
    if constexpr (std::is_same_v<From, half> || std::is_same_v<From, bfloat16>) {
      assert(out.dtype == DType::kFloat32);
      return convert_all<float, From>(out, in, factor);
    } else if constexpr (std::is_same_v<From, float>) {
      assert(size_bytes(out.dtype) == 2);
      if (out.dtype == DType::kFloat16) return convert_all<half, float>(out, in, factor);
      return convert_all<bfloat16, float>(out, in, factor);
    }
    assert(false && "no conversion between these types");
  });
}

}  // namespace motley
