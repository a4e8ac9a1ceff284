// comm/kernel/convert_vector.h: what is declared in convert_parts.h, for vectors of kBytes bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "comm/kernel/convert_parts.h"
#include "comm/kernel/vectors.h"

namespace motley {

template <std::size_t kBytes>
struct ConvertVectors {
  using Floats = Vector<float, kBytes>;
  using Words = Vector<std::int32_t, kBytes>;
  using Halves = Vector<std::uint16_t, kBytes / 2>;
  using SignedHalves = Vector<std::int16_t, kBytes / 2>;
  using Octets = Vector<std::uint8_t, kBytes / 4>;
  using SignedOctets = Vector<std::int8_t, kBytes / 4>;
  static constexpr std::size_t kLanes = kBytes / sizeof(float);
  static_assert(QuantizeParts::kStep % kLanes == 0);

  template <class T>
  [[gnu::always_inline]] static inline Floats load_floats(const std::byte* from) noexcept {
    Floats floats;
    if constexpr (std::is_same_v<T, float>) {
      load(floats, from);
    } else {
      widen<T, Floats, Words, Halves>(floats, from);
    }
    return floats;
  }
  template <class T>
  [[gnu::always_inline]] static inline void store_floats(std::byte* to, Floats floats) noexcept {
    if constexpr (std::is_same_v<T, float>) {
      std::memcpy(to, &floats, sizeof floats);
    } else {
      narrow<T, Floats, Words, Halves>(to, floats);
    }
  }

  template <class To, class From, bool kScaled>
  static std::size_t convert(std::byte* out, const std::byte* in, std::size_t n,
                             float factor) noexcept {
    std::size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      Floats floats = load_floats<From>(in + i * sizeof(From));
      if constexpr (kScaled) floats = factor * floats;
      store_floats<To>(out + i * sizeof(To), floats);
    }
    return i;
  }

  template <class T>
  static std::uint32_t most(const std::byte* in, std::size_t n) noexcept {
    Words most = {};
    for (std::size_t i = 0; i < n; i += kLanes) {
      const Floats floats = load_floats<T>(in + i * sizeof(T));
      const Words magnitudes = reinterpret_cast<Words>(floats) & 0x7fffffff;
      most = magnitudes > most ? magnitudes : most;
    }
    std::int32_t of_all = 0;
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      of_all = most[lane] > of_all ? most[lane] : of_all;
    return static_cast<std::uint32_t>(of_all);
  }

  template <class T>
  static void quantize(std::int8_t* out, const std::byte* in, std::size_t n,
                       float inverse) noexcept {
    if (inverse == 0) return static_cast<void>(std::memset(out, 0, n));
    for (std::size_t i = 0; i < n; i += kLanes) {
      const Floats floats = load_floats<T>(in + i * sizeof(T)) * inverse + 0x1.8p23f;
      const Words bits = reinterpret_cast<Words>(floats) & 0xff;
      const Octets octets = __builtin_convertvector(bits, Octets);
      std::memcpy(out + i, &octets, sizeof octets);
    }
  }

  template <class T>
  static void dequantize(std::byte* out, const std::int8_t* in, std::size_t n,
                         float scale) noexcept {
    for (std::size_t i = 0; i < n; i += kLanes) {
      SignedOctets octets;
      std::memcpy(&octets, in + i, sizeof octets);
      // In two steps, each of which is an instruction; one step would be taken lane by lane.
      const SignedHalves halves = __builtin_convertvector(octets, SignedHalves);
      const Words words = __builtin_convertvector(halves, Words);
      store_floats<T>(out + i * sizeof(T), __builtin_convertvector(words, Floats) * scale);
    }
  }

  template <class To, class From>
  static ConvertPart part_of(double factor) noexcept {
    return factor == 1 ? &convert<To, From, false> : &convert<To, From, true>;
  }
  template <class T>
  static ConvertPart part_of(DType to, double factor) noexcept {
    return to == DType::kFloat32 ? part_of<float, T>(factor) : part_of<T, T>(factor);
  }
  static ConvertPart part(DType to, DType from, double factor) noexcept {
    if (from == DType::kFloat16) return part_of<half>(to, factor);
    if (from == DType::kBFloat16) return part_of<bfloat16>(to, factor);
    return to == DType::kFloat16 ? part_of<half, float>(factor) : part_of<bfloat16, float>(factor);
  }
  template <class T>
  static QuantizeParts parts_of() noexcept {
    return {&most<T>, &quantize<T>, &dequantize<T>};
  }
  static QuantizeParts parts(DType dtype) noexcept {
    if (dtype == DType::kFloat16) return parts_of<half>();
    return dtype == DType::kBFloat16 ? parts_of<bfloat16>() : parts_of<float>();
  }
};

}  // namespace motley
