// test/support/simt/types.h: CUDA's small vectors. A load of one is one access, as on a device.
#pragma once

#include <cstdint>

// NOLINTBEGIN: the names are CUDA's

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  unsigned x, y, z;
};

template <class T, unsigned kAlignment>
struct alignas(kAlignment) SimtVector2 {
  T x, y;
};

template <class T, unsigned kAlignment>
struct alignas(kAlignment) SimtVector4 {
  T x, y, z, w;
};

using char2 = SimtVector2<signed char, 2>;
using uchar2 = SimtVector2<unsigned char, 2>;
using short2 = SimtVector2<short, 4>;
using ushort2 = SimtVector2<unsigned short, 4>;
using int2 = SimtVector2<int, 8>;
using uint2 = SimtVector2<unsigned, 8>;
using float2 = SimtVector2<float, 8>;
using double2 = SimtVector2<double, 16>;
using longlong2 = SimtVector2<long long, 16>;
using ulonglong2 = SimtVector2<unsigned long long, 16>;
using char4 = SimtVector4<signed char, 4>;
using uchar4 = SimtVector4<unsigned char, 4>;
using short4 = SimtVector4<short, 8>;
using ushort4 = SimtVector4<unsigned short, 8>;
using int4 = SimtVector4<int, 16>;
using uint4 = SimtVector4<unsigned, 16>;
using float4 = SimtVector4<float, 16>;

inline int2 make_int2(int x, int y) { return {x, y}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline double2 make_double2(double x, double y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// NOLINTEND
