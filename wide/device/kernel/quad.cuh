// wide/device/kernel/quad.cuh: four neighbouring factors in one thread (lane.h), moved as one word,
// and what a warp does with numbers.
#pragma once

#include <cstdint>

#include "comm/launch.cuh"
#include "wide/lane.h"

namespace motley::wide {

using One = Lane<float>;

struct Quad {
  using Scalar = float;
  static constexpr int kLanes = 4;

  Quad() = default;
  __host__ __device__ explicit Quad(float x) : v{x, x, x, x} {}
  __host__ __device__ explicit Quad(float4 x) : v(x) {}
  __host__ __device__ static Quad load(const float* from) {
    return Quad(*reinterpret_cast<const float4*>(from));
  }
  __host__ __device__ void store(float* to) const { *reinterpret_cast<float4*>(to) = v; }

  template <class F>
  __host__ __device__ static Quad each(Quad a, Quad b, F f) {
    return Quad(make_float4(f(a.v.x, b.v.x), f(a.v.y, b.v.y), f(a.v.z, b.v.z), f(a.v.w, b.v.w)));
  }
  __host__ __device__ friend Quad operator+(Quad a, Quad b) {
    return each(a, b, [](float x, float y) { return x + y; });
  }
  __host__ __device__ friend Quad operator-(Quad a, Quad b) {
    return each(a, b, [](float x, float y) { return x - y; });
  }
  __host__ __device__ friend Quad operator*(Quad a, Quad b) {
    return each(a, b, [](float x, float y) { return x * y; });
  }
  __host__ __device__ friend Quad operator/(Quad a, Quad b) {
    return each(a, b, [](float x, float y) { return x / y; });
  }
  __host__ __device__ friend Quad smaller(Quad a, Quad b) {
    return each(a, b, [](float x, float y) { return x < y ? x : y; });
  }
  __host__ __device__ friend Quad larger(Quad a, Quad b) {
    return each(a, b, [](float x, float y) { return x > y ? x : y; });
  }
  __host__ __device__ friend Quad root(Quad a) {
    return each(a, a, [](float x, float) { return sqrtf(x); });
  }
  __host__ __device__ friend Quad inverse_root(Quad a) {
    return each(a, a, [](float x, float) { return 1 / sqrtf(x); });
  }
  __host__ __device__ friend float total(Quad a) { return (a.v.x + a.v.y) + (a.v.z + a.v.w); }

  float4 v;
};

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kLanesOfWarp = 32;

__device__ inline float summed(float x, int step, unsigned mask = kAllLanes) {
  return x + __shfl_xor_sync(mask, x, step);
}
__device__ inline Quad summed(Quad x, int step, unsigned mask = kAllLanes) {
  return Quad(make_float4(summed(x.v.x, step, mask), summed(x.v.y, step, mask),
                          summed(x.v.z, step, mask), summed(x.v.w, step, mask)));
}

}  // namespace motley::wide
