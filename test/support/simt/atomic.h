// test/support/simt/atomic.h: atomic operations and fences. Each returns what was there before.
#pragma once

#include <cstdint>
#include <type_traits>

#include "test/support/simt/types.h"

namespace motley::simt {

enum class Atomic { kAdd, kMin, kMax, kAnd, kOr, kXor, kExchange, kIncrement, kDecrement };

// Of int, unsigned, (unsigned) long long, float and double. Bits only of integers; kIncrement and
// kDecrement only of unsigned.
template <class T>
T atomic(Atomic how, T* at, T value);
// Of unsigned short, int, unsigned and (unsigned) long long.
template <class T>
T compare_and_swap(T* at, T expected, T desired);
// Its elements one after another, as a device does it.
float2 atomic_add_each(float2* at, float2 value);
float4 atomic_add_each(float4* at, float4 value);

enum class Fence { kBlock, kDevice };
void fence(Fence scope) noexcept;

}  // namespace motley::simt

// NOLINTBEGIN: the names are CUDA's

template <class T>
T atomicAdd(T* at, std::type_identity_t<T> value) {
  return motley::simt::atomic(motley::simt::Atomic::kAdd, at, value);
}
inline float2 atomicAdd(float2* at, float2 value) {
  return motley::simt::atomic_add_each(at, value);
}
inline float4 atomicAdd(float4* at, float4 value) {
  return motley::simt::atomic_add_each(at, value);
}
template <class T>
T atomicSub(T* at, std::type_identity_t<T> value) {
  return motley::simt::atomic(motley::simt::Atomic::kAdd, at, static_cast<T>(T{0} - value));
}
template <class T>
T atomicMin(T* at, std::type_identity_t<T> value) {
  return motley::simt::atomic(motley::simt::Atomic::kMin, at, value);
}
template <class T>
T atomicMax(T* at, std::type_identity_t<T> value) {
  return motley::simt::atomic(motley::simt::Atomic::kMax, at, value);
}
template <class T>
T atomicAnd(T* at, std::type_identity_t<T> value) {
  return motley::simt::atomic(motley::simt::Atomic::kAnd, at, value);
}
template <class T>
T atomicOr(T* at, std::type_identity_t<T> value) {
  return motley::simt::atomic(motley::simt::Atomic::kOr, at, value);
}
template <class T>
T atomicXor(T* at, std::type_identity_t<T> value) {
  return motley::simt::atomic(motley::simt::Atomic::kXor, at, value);
}
template <class T>
T atomicExch(T* at, std::type_identity_t<T> value) {
  return motley::simt::atomic(motley::simt::Atomic::kExchange, at, value);
}
inline unsigned atomicInc(unsigned* at, unsigned last) {
  return motley::simt::atomic(motley::simt::Atomic::kIncrement, at, last);
}
inline unsigned atomicDec(unsigned* at, unsigned last) {
  return motley::simt::atomic(motley::simt::Atomic::kDecrement, at, last);
}
template <class T>
T atomicCAS(T* at, std::type_identity_t<T> expected, std::type_identity_t<T> desired) {
  return motley::simt::compare_and_swap(at, expected, desired);
}

inline void __threadfence_block() { motley::simt::fence(motley::simt::Fence::kBlock); }
inline void __threadfence() { motley::simt::fence(motley::simt::Fence::kDevice); }
inline void __threadfence_system() { motley::simt::fence(motley::simt::Fence::kDevice); }

// NOLINTEND
