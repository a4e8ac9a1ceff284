#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "comm/kernel/combine.h"
#include "comm/kernel/cpu.h"

namespace motley {
namespace {

[[gnu::target("avx512f")]] void stream_512(std::byte* to, const std::byte* from,
                                           std::size_t lines) noexcept {
  for (std::size_t i = 0; i < lines; ++i) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + 64 * i), _mm512_loadu_si512(from + 64 * i));
  }
}

void stream_128(std::byte* to, const std::byte* from, std::size_t lines) noexcept {
  for (std::size_t i = 0; i < 4 * lines; ++i) {
    const auto* const source = reinterpret_cast<const __m128i*>(from + 16 * i);
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + 16 * i), _mm_loadu_si128(source));
  }
}

}  // namespace

VectorWidth vector_width() noexcept {
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq")) {
    return VectorWidth::k512;
  }
  return __builtin_cpu_supports("avx2") ? VectorWidth::k256 : VectorWidth::k128;
}

void copy_stream(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  if (bytes == 0) return;
  const std::size_t head = std::min<std::size_t>(-reinterpret_cast<std::uintptr_t>(to) & 63, bytes);
  std::memcpy(to, from, head);
  const std::size_t lines = (bytes - head) / 64;
  if (vector_width() == VectorWidth::k512) {
    stream_512(to + head, from + head, lines);
  } else {
    stream_128(to + head, from + head, lines);
  }
  const std::size_t done = head + 64 * lines;
  std::memcpy(to + done, from + done, bytes - done);
}

void streams_done() noexcept { _mm_sfence(); }

}  // namespace motley
