// test/support/simt/warp.h: what the lanes of a warp, and the threads of a block, do together.
// Lanes meet wherever they name the same mask in the same kind of call.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace motley::simt {

// `value` as the bits that are exchanged, and back.
template <class T>
std::uint64_t to_bits(T value) noexcept {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
T from_bits(std::uint64_t bits) noexcept {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

enum class Shuffle { kFrom, kUp, kDown, kXor };
std::uint64_t shuffle(Shuffle how, std::uint32_t mask, std::uint64_t value, int by, int width);

std::uint32_t ballot(std::uint32_t mask, bool predicate);
std::uint32_t match_any(std::uint32_t mask, std::uint64_t value);
// The mask if all bring the same value, else 0.
std::uint32_t match_all(std::uint32_t mask, std::uint64_t value);

enum class Reduction { kAdd, kMin, kMax, kMinSigned, kMaxSigned, kAnd, kOr, kXor };
std::uint32_t reduce(Reduction how, std::uint32_t mask, std::uint32_t value);

void meet(std::uint32_t mask);  // __syncwarp
// All threads of the block; returns how many bring true.
unsigned meet_all(bool predicate);
std::uint32_t active_lanes() noexcept;
// Those lanes of the warp that come here, too, before all others wait elsewhere or have returned.
std::uint32_t coalesce();

}  // namespace motley::simt

// NOLINTBEGIN: the names are CUDA's

inline constexpr unsigned kSimtAllLanes = 0xffffffffu;

inline void __syncthreads() { motley::simt::meet_all(false); }
inline int __syncthreads_count(int p) { return static_cast<int>(motley::simt::meet_all(p != 0)); }
inline int __syncthreads_or(int p) { return motley::simt::meet_all(p != 0) != 0; }
inline int __syncthreads_and(int p) { return motley::simt::meet_all(p == 0) == 0; }
inline void __syncwarp(unsigned mask = kSimtAllLanes) { motley::simt::meet(mask); }

template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
  using namespace motley::simt;
  return from_bits<T>(shuffle(Shuffle::kFrom, mask, to_bits(value), lane, width));
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
  using namespace motley::simt;
  return from_bits<T>(shuffle(Shuffle::kUp, mask, to_bits(value), static_cast<int>(by), width));
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
  using namespace motley::simt;
  return from_bits<T>(shuffle(Shuffle::kDown, mask, to_bits(value), static_cast<int>(by), width));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32) {
  using namespace motley::simt;
  return from_bits<T>(shuffle(Shuffle::kXor, mask, to_bits(value), by, width));
}

inline unsigned __ballot_sync(unsigned mask, int p) { return motley::simt::ballot(mask, p != 0); }
inline int __any_sync(unsigned mask, int p) { return motley::simt::ballot(mask, p != 0) != 0; }
inline int __all_sync(unsigned mask, int p) { return motley::simt::ballot(mask, p == 0) == 0; }
inline unsigned __activemask() { return motley::simt::active_lanes(); }

template <class T>
unsigned __match_any_sync(unsigned mask, T value) {
  return motley::simt::match_any(mask, motley::simt::to_bits(value));
}
template <class T>
unsigned __match_all_sync(unsigned mask, T value, int* same) {
  const unsigned lanes = motley::simt::match_all(mask, motley::simt::to_bits(value));
  *same = lanes != 0;
  return lanes;
}

inline unsigned __reduce_add_sync(unsigned mask, unsigned value) {
  return motley::simt::reduce(motley::simt::Reduction::kAdd, mask, value);
}
inline int __reduce_add_sync(unsigned mask, int value) {
  return static_cast<int>(__reduce_add_sync(mask, static_cast<unsigned>(value)));
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned value) {
  return motley::simt::reduce(motley::simt::Reduction::kMin, mask, value);
}
inline int __reduce_min_sync(unsigned mask, int value) {
  return static_cast<int>(motley::simt::reduce(motley::simt::Reduction::kMinSigned, mask,
                                               static_cast<unsigned>(value)));
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value) {
  return motley::simt::reduce(motley::simt::Reduction::kMax, mask, value);
}
inline int __reduce_max_sync(unsigned mask, int value) {
  return static_cast<int>(motley::simt::reduce(motley::simt::Reduction::kMaxSigned, mask,
                                               static_cast<unsigned>(value)));
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned value) {
  return motley::simt::reduce(motley::simt::Reduction::kAnd, mask, value);
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value) {
  return motley::simt::reduce(motley::simt::Reduction::kOr, mask, value);
}
inline unsigned __reduce_xor_sync(unsigned mask, unsigned value) {
  return motley::simt::reduce(motley::simt::Reduction::kXor, mask, value);
}

// NOLINTEND
