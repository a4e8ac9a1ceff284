#include "comm/kernel/combine.h"

#include <cassert>
#include <cstring>

#include "comm/kernel/combine_vector.h"
#include "comm/kernel/cpu.h"

namespace motley {
namespace {

template <class T, class Op, bool kWeighted>
std::size_t one_by_one(std::byte* out, const Terms& terms, std::size_t n) noexcept {
  using A = Wide<T>;
  const auto term = [&](int s, std::size_t i) {
    T x;
    std::memcpy(&x, terms.sources[s] + i * sizeof(T), sizeof(T));
    auto wide = static_cast<A>(x);
    if constexpr (kWeighted) wide *= static_cast<A>(terms.weights[s]);
    return wide;
  };
  for (std::size_t i = 0; i < n; ++i) {
    A sum = term(0, i);
    for (int s = 1; s < terms.count; ++s) sum = Op{}(sum, term(s, i));
    const auto x = static_cast<T>(terms.average ? divided(sum, terms.count) : sum);
    std::memcpy(out + i * sizeof(T), &x, sizeof(T));
  }
  return n;
}

}  // namespace

Combine::Combine(DType dtype, ReduceOp op) noexcept
    : element_bytes_(size_bytes(dtype)), average_(op == ReduceOp::kAverage) {
  dispatch(dtype, op, [&]<class T>(auto functor) {
    rest_ = one_by_one<T, decltype(functor), false>;
    if constexpr (!std::is_integral_v<T>) {
      if (op == ReduceOp::kWeightedSum) rest_ = one_by_one<T, Sum, true>;
    }
  });
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

void Combine::operator()(std::byte* out, const std::byte* const* sources, int count, std::size_t n,
                         const double* weights) const noexcept {
  assert(static_cast<std::size_t>(count) <= kMaxCombined);
  const Terms terms{sources, count, average_, weights};
  if (n * element_bytes_ < kLeastVector) return static_cast<void>(rest_(out, terms, n));
  const std::size_t done = vectors_(out, terms, n);
  if (done == n) return;
  const std::byte* rest[kMaxCombined];
  for (int s = 0; s < count; ++s) rest[s] = sources[s] + done * element_bytes_;
  rest_(out + done * element_bytes_, {rest, count, average_, weights}, n - done);
}

}  // namespace motley
