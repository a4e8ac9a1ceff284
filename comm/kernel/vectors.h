// comm/kernel/vectors.h: vectors of kBytes bytes, and 16-bit floats in them.
//
// They are the compiler's own (GCC, Clang), so one text serves every width. Each width is compiled
// in a file of its own, for processors that have it; such a file must not emit functions that
// others share, so what is left over at the end of a buffer is done elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "comm/dtype.h"

namespace motley {

template <class T, std::size_t kBytes>
using Vector [[gnu::vector_size(kBytes)]] = T;

template <class V>
[[gnu::always_inline]] inline void load(V& v, const std::byte* from) noexcept {
  std::memcpy(&v, from, sizeof(V));
}

// What bfloat16 and half do (dtype.h), on many at once.
template <class T, class Floats, class Words, class Halves>
[[gnu::always_inline]] inline void widen(Floats& to, const std::byte* from) noexcept {
  Halves halves;
  load(halves, from);
  const Words bits = __builtin_convertvector(halves, Words);
  Words u = bits << 16;
  if constexpr (std::is_same_v<T, half>) {
    const Words magnitude = bits & 0x7fff;
    const Floats subnormal = __builtin_convertvector(magnitude, Floats) * 0x1p-24f;
    u = (magnitude << 13) + (112 << 23);
    u = magnitude >= 0x7c00 ? 0x7f800000 | (magnitude & 0x3ff) << 13 : u;
    u = magnitude < 0x400 ? reinterpret_cast<Words>(subnormal) : u;
    u |= (bits & 0x8000) << 16;
  }
  std::memcpy(&to, &u, sizeof(to));
}

template <class T, class Floats, class Words, class Halves>
[[gnu::always_inline]] inline void narrow(std::byte* to, const Floats& from) noexcept {
  if constexpr (std::is_same_v<T, half> && sizeof(Floats) == 64) {
    // AVX-512 has an instruction for it, but for the payload of NaN.
    Halves halves;
    asm("vcvtps2ph $0, %1, %0" : "=v"(halves) : "v"(from));
    halves = (halves & 0x7fff) > 0x7c00 ? (halves & 0x8000) | 0x7e00 : halves;
    return static_cast<void>(std::memcpy(to, &halves, sizeof(halves)));
  }
  Words u;
  std::memcpy(&u, &from, sizeof(u));
  using Bits = Vector<std::uint32_t, sizeof(Words)>;  // of which sums may wrap, in NaN
  const Words m = u & 0x7fffffff;
  Words result;
  if constexpr (std::is_same_v<T, half>) {
    const Floats lifted = reinterpret_cast<Floats>(m) + 0.5f;
    const Bits nearest = reinterpret_cast<Bits>(m) - (112u << 23) + 0xfffu;
    result = reinterpret_cast<Words>(nearest + reinterpret_cast<Bits>(m >> 13 & 1)) >> 13;
    result = m < 0x38800000 ? reinterpret_cast<Words>(lifted) - 0x3f000000 : result;
    result = m >= 0x477ff000 ? m * 0 + 0x7c00 : result;
    result = m > 0x7f800000 ? m * 0 + 0x7e00 : result;
    result |= u >> 16 & 0x8000;
  } else {
    const Words high = u >> 16 & 0xffff;
    const Bits nearest = reinterpret_cast<Bits>(u) + 0x7fffu;
    result = reinterpret_cast<Words>(nearest + reinterpret_cast<Bits>(high & 1)) >> 16;
    result = m > 0x7f800000 ? high | 0x40 : result;
  }
  const Halves halves = __builtin_convertvector(result & 0xffff, Halves);
  std::memcpy(to, &halves, sizeof(halves));
}

}  // namespace motley
