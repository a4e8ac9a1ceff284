// wide/read/number.h: digits, numbers and hashes of text. Functions named …8 read 8 bytes from
// where they are told to.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace motley::wide {

inline bool is_blank(char c) noexcept { return c == ' ' || c == '\t'; }
inline bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

inline std::uint64_t load8(const char* p) noexcept {
  std::uint64_t x = 0;
  std::memcpy(&x, p, 8);
  return x;
}

// The number of digits that the 8 bytes begin with; `value` becomes theirs. Without a branch.
inline int digits_of(std::uint64_t bytes, std::uint64_t& value) noexcept {
  std::uint64_t d = bytes ^ 0x3030303030303030u;
  const std::uint64_t other = ((d + 0x7676767676767676u) | d) & 0x8080808080808080u;
  const int n = other == 0 ? 8 : __builtin_ctzll(other) / 8;
  d = n == 0 ? 0 : d << ((64 - 8 * n) & 63);
  d = d * 10 + (d >> 8);  // pairs, then fours, then all
  constexpr std::uint64_t kPairs = 0x000000ff000000ffu;
  value = ((d & kPairs) * 0x000f424000000064u + ((d >> 16) & kPairs) * 0x0000271000000001u) >> 32;
  return n;
}
inline int digits8(const char* p, std::uint64_t& value) noexcept {
  return digits_of(load8(p), value);
}

// Powers of ten that a double holds exactly.
inline constexpr double kTens[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                   1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};

enum class Number { kOk, kMalformed, kNotFinite };

// The number that is exactly the text [p, end), rounded once.
inline Number parse_number(const char* p, const char* end, double& out) {
  if (p != end && *p == '+') {
    ++p;
    if (p != end && *p == '-') return Number::kMalformed;
  }
  // Up to 15 digits and no exponent: exact in a double, and so is the power of ten that it is
  // divided by.
  const char* q = p != end && *p == '-' ? p + 1 : p;
  std::uint64_t mantissa = 0;
  int digits = 0;
  int decimals = 0;
  for (; q != end && is_digit(*q) && digits < 15; ++q, ++digits) {
    mantissa = mantissa * 10 + static_cast<std::uint64_t>(*q - '0');
  }
  if (q != end && *q == '.') {
    for (++q; q != end && is_digit(*q) && digits < 15; ++q, ++digits, ++decimals) {
      mantissa = mantissa * 10 + static_cast<std::uint64_t>(*q - '0');
    }
  }
  if (q == end && digits > 0) {
    out = static_cast<double>(mantissa) / kTens[decimals];
    if (*p == '-') out = -out;
    return Number::kOk;
  }
  const auto [stop, error] = std::from_chars(p, end, out);
  if (error == std::errc::invalid_argument || stop != end) return Number::kMalformed;
  if (error == std::errc::result_out_of_range) {  // reported for both ends of the range
    const std::string_view text(p, static_cast<std::size_t>(end - p));
    const std::size_t exponent = text.find_first_of("eE");
    const bool tiny = exponent != std::string_view::npos && text.substr(exponent + 1, 1) == "-";
    out = 0;
    return tiny ? Number::kOk : Number::kNotFinite;
  }
  return std::isfinite(out) ? Number::kOk : Number::kNotFinite;
}

// What hash_text() is made of, in turn.
inline std::uint64_t hash_begun(std::uint64_t seed, std::size_t n) noexcept {
  return seed ^ (n * 0x9e3779b97f4a7c15u);
}
inline std::uint64_t hash_mixed(std::uint64_t h, std::uint64_t word) noexcept {
  h = (h ^ word) * 0xbf58476d1ce4e5b9u;
  return h ^ h >> 32;
}
inline std::uint64_t hash_ended(std::uint64_t h) noexcept {
  h = (h ^ (h >> 29)) * 0x94d049bb133111ebu;
  return h ^ (h >> 31);
}

// 64 bits that depend on all of `text` and of `seed`. The same in all versions: models keep ids.
inline std::uint64_t hash_text(std::uint64_t seed, std::string_view text) noexcept {
  const char* const p = text.data();
  const std::size_t n = text.size();
  std::uint64_t h = hash_begun(seed, n);
  const auto mix = [&h](std::uint64_t word) { h = hash_mixed(h, word); };
  const auto load4 = [](const char* from) {
    std::uint32_t x = 0;
    std::memcpy(&x, from, 4);
    return std::uint64_t{x};
  };
  // The last bytes are read anew where they are fewer than a word: no loop over single bytes.
  if (n >= 8) {
    for (std::size_t i = 0; i + 8 < n; i += 8) mix(load8(p + i));
    mix(load8(p + n - 8));
  } else if (n >= 4) {
    mix(load4(p) << 32 | load4(p + n - 4));
  } else if (n > 0) {
    const auto byte = [p](std::size_t i) {
      return std::uint64_t{static_cast<unsigned char>(p[i])};
    };
    mix(byte(0) << 16 | byte(n / 2) << 8 | byte(n - 1));
  }
  return hash_ended(h);
}

// hash_text() of a word.
inline std::uint64_t hash_word(std::uint64_t seed, std::uint64_t word) noexcept {
  return hash_ended(hash_mixed(hash_begun(seed, 8), word));
}

// hash_text() of the first n <= 8 of the bytes in a word, for texts whose lengths nobody can
// foresee: without a branch.
inline std::uint64_t hash_short(std::uint64_t seed, std::uint64_t bytes, std::size_t n) noexcept {
  const auto last4 = static_cast<std::uint32_t>(bytes >> ((8 * n - 32) & 63));
  const std::uint64_t four = (bytes & 0xffffffffu) << 32 | last4;
  const std::uint64_t few = (bytes & 0xff) << 16 | (bytes >> (n / 2 * 8) & 0xff) << 8 |
                            (bytes >> ((8 * n - 8) & 63) & 0xff);
  const auto where = [](bool holds, std::uint64_t x) {
    return x & (std::uint64_t{0} - static_cast<std::uint64_t>(holds));
  };
  const std::uint64_t begun = hash_begun(seed, n);
  const std::uint64_t mixed =
      hash_mixed(begun, where(n == 8, bytes) | where(n >= 4 && n < 8, four) | where(n < 4, few));
  return hash_ended(n == 0 ? begun : mixed);
}

inline std::uint32_t to_bits(std::uint64_t hash, int bits) noexcept {
  return static_cast<std::uint32_t>(hash >> (64 - bits));
}

// Text as it can be shown in a message: printable and short.
std::string quoted(std::string_view text);

}  // namespace motley::wide
