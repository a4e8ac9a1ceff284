// comm/kernel/weighted_ops.h: what weighted_rows.h does to one element, once for CPU and GPU, and
// which types it has. Neither fuses a product with a sum, so both give the same bits.
#pragma once

#include <string>

#include "comm/error.h"
#include "comm/kernel/ops.h"
#include "comm/weighted_rows.h"

namespace motley {

struct Weighted {
  float weight;
  constexpr float operator()(float x) const { return weight * x; }
  constexpr float operator()(float sum, float x) const { return sum + weight * x; }
};

// Calls body.template operator()<T>() with the type of all elements.
template <class Body>
void dispatch_rows(const char* who, DType dtype, Body&& body) {
  if (dtype == DType::kFloat32) return body.template operator()<float>();
  if (dtype == DType::kFloat16) return body.template operator()<half>();
  if (dtype == DType::kBFloat16) return body.template operator()<bfloat16>();
  throw Error(ErrorCode::kInvalid, std::string(who) + ": elements are " + name(dtype) +
                                       ". Pass float32, float16 or bfloat16.");
}

inline void expect_shape([[maybe_unused]] const ScaledRows& r) {
  assert(r.out.dtype == r.in.dtype && r.columns != 0);
  assert(r.out.count == r.index.count * r.columns);
  assert(r.scale.count == 0 || r.scale.count == r.index.count);
}
inline void expect_shape([[maybe_unused]] const WeightedRowSums& s) {
  assert(s.out.dtype == s.in.dtype && s.columns != 0 && s.terms != 0 && s.parts != 0);
  assert(s.out.count * s.terms * s.parts == s.row.count * s.columns);
  assert(s.weight.count == 0 || s.weight.count * s.parts == s.row.count);
}
inline void expect_shape([[maybe_unused]] const RowProducts& p) {
  assert(p.by.dtype == p.in.dtype && p.columns != 0 && p.terms != 0 && p.parts != 0);
  assert(p.out.dtype == DType::kFloat32 && p.out.count * p.parts == p.row.count);
  assert(p.by.count * p.terms == p.out.count * p.columns);
}

}  // namespace motley
