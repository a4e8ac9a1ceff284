#include "comm/kernel/combine.h"

#include <cassert>
#include <cstring>

#include "comm/kernel/combine_vector.h"
#include "comm/kernel/cpu.h"

namespace motley {
namespace {

template <class T, class Op>
std::size_t one_by_one(std::byte* out, const std::byte* const* sources, int count, std::size_t n,
                       bool average) noexcept {
  using A = std::conditional_t<kIs16BitFloat<T>, float, T>;
  for (std::size_t i = 0; i < n; ++i) {
    T x;
    std::memcpy(&x, sources[0] + i * sizeof(T), sizeof(T));
    A sum = static_cast<A>(x);
    for (int s = 1; s < count; ++s) {
      std::memcpy(&x, sources[s] + i * sizeof(T), sizeof(T));
      sum = Op{}(sum, static_cast<A>(x));
    }
    x = static_cast<T>(average ? divided(sum, count) : sum);
    std::memcpy(out + i * sizeof(T), &x, sizeof(T));
  }
  return n;
}

}  // namespace

Combine::Combine(DType dtype, ReduceOp op) noexcept
    : element_bytes_(size_bytes(dtype)), average_(op == ReduceOp::kAverage) {
  dispatch(dtype, op, [&]<class T>(auto functor) { rest_ = one_by_one<T, decltype(functor)>; });
  switch (vector_width()) {
    case VectorWidth::k512:
      vectors_ = combine_512(dtype, op);
      break;
    case VectorWidth::k256:
      vectors_ = combine_256(dtype, op);
      break;
    case VectorWidth::k128:
      vectors_ = vector_part<16>(dtype, op);
      break;
  }
}

void Combine::operator()(std::byte* out, const std::byte* const* sources, int count,
                         std::size_t n) const noexcept {
  assert(count <= kMaxSources);
  const std::size_t done = vectors_(out, sources, count, n, average_);
  if (done == n) return;
  const std::byte* rest[kMaxSources];
  for (int s = 0; s < count; ++s) rest[s] = sources[s] + done * element_bytes_;
  rest_(out + done * element_bytes_, rest, count, n - done, average_);
}

}  // namespace motley
