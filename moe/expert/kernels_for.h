// moe/expert/kernels_for.h: the loops of kernels.h, for a source that is compiled for one width of
// vectors. All is local to that source: functions that others share must not come from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "moe/expert/kernels.h"

namespace motley::moe::expert {
namespace {

template <std::size_t kBytes>
struct Loops {
  static constexpr std::size_t kLanes = kBytes / sizeof(float);
  using Floats [[gnu::vector_size(kBytes)]] = float;
  using Words [[gnu::vector_size(kBytes)]] = std::int32_t;
  // Rows and columns that are worked on at once, by the registers there are.
  static constexpr std::size_t kDotRows = kBytes == 64 ? 6 : 4;
  static constexpr std::size_t kDotColumns = kBytes == 64 ? 4 : 2;
  static constexpr std::size_t kSumRows = kBytes == 64 ? 6 : 4;
  static constexpr std::size_t kSumVectors = kBytes == 64 ? 4 : 2;
  static constexpr std::size_t kPanel = kSumVectors * kLanes;
  // Rows, and terms of a sum, whose numbers stay in the caches while all columns pass: multiples of
  // the rows of a tile. From kPackedRows rows on it pays to copy them there.
  static constexpr std::size_t kDotBlock = 48, kSumBlock = 192, kTerms = 256, kPackedRows = 32;

  [[gnu::always_inline]] static Floats load(const float* from) noexcept {
    Floats v;
    std::memcpy(&v, from, kBytes);
    return v;
  }
  [[gnu::always_inline]] static void store(float* to, const Floats& v) noexcept {
    std::memcpy(to, &v, kBytes);
  }
  [[gnu::always_inline]] static void put(float* to, float value, Into into) noexcept {
    *to = into == Into::kAdd ? *to + value : value;
  }

  // Halves are added until one number is left.
  template <class V>
  [[gnu::always_inline]] static float lane_sum(const V& v) noexcept {
    if constexpr (sizeof(V) == sizeof(float)) {
      float one;
      std::memcpy(&one, &v, sizeof(one));
      return one;
    } else {
      using Half [[gnu::vector_size(sizeof(V) / 2)]] = float;
      Half low, high;
      std::memcpy(&low, &v, sizeof(low));
      std::memcpy(&high, reinterpret_cast<const char*>(&v) + sizeof(low), sizeof(high));
      return lane_sum<Half>(low + high);
    }
  }

  template <std::size_t kRows, std::size_t kColumns>
  [[gnu::always_inline]] static void dot_tile(const Product& p, std::size_t i,
                                              std::size_t j) noexcept {
    Floats sum[kRows][kColumns] = {};
    const float* const a = p.a + i * p.a_row;
    const float* const b = p.b + j * p.b_row;
    std::size_t k = 0;
    for (; k + kLanes <= p.inner; k += kLanes) {
      Floats column[kColumns];
      for (std::size_t c = 0; c < kColumns; ++c) column[c] = load(b + c * p.b_row + k);
      for (std::size_t r = 0; r < kRows; ++r) {
        const Floats row = load(a + r * p.a_row + k);
        for (std::size_t c = 0; c < kColumns; ++c) sum[r][c] += row * column[c];
      }
    }
    for (std::size_t r = 0; r < kRows; ++r) {
      for (std::size_t c = 0; c < kColumns; ++c) {
        float total = lane_sum(sum[r][c]);
        for (std::size_t t = k; t < p.inner; ++t) {
          total += a[r * p.a_row + t] * b[c * p.b_row + t];
        }
        put(p.out + (i + r) * p.out_row + j + c, total, p.into);
      }
    }
  }

  template <std::size_t kColumns>
  static void dot_columns(const Product& p, std::size_t first, std::size_t end,
                          std::size_t j) noexcept {
    std::size_t i = first;
    for (; i + kDotRows <= end; i += kDotRows) dot_tile<kDotRows, kColumns>(p, i, j);
    for (; i + 2 <= end; i += 2) dot_tile<2, kColumns>(p, i, j);
    for (; i < end; ++i) dot_tile<1, kColumns>(p, i, j);
  }

  static void dots(const Product& p) {
    for (std::size_t i = 0; i < p.rows; i += kDotBlock) {
      const std::size_t end = i + kDotBlock < p.rows ? i + kDotBlock : p.rows;
      std::size_t j = 0;
      for (; j + kDotColumns <= p.columns; j += kDotColumns) dot_columns<kDotColumns>(p, i, end, j);
      for (; j < p.columns; ++j) dot_columns<1>(p, i, end, j);
    }
  }

  template <std::size_t kRows, std::size_t kVectors>
  [[gnu::always_inline]] static void sum_tile(const Product& p, std::size_t i,
                                              std::size_t j) noexcept {
    Floats sum[kRows][kVectors] = {};
    float* const out = p.out + i * p.out_row + j;
    if (p.into == Into::kAdd) {
      for (std::size_t r = 0; r < kRows; ++r) {
        for (std::size_t v = 0; v < kVectors; ++v)
          sum[r][v] = load(out + r * p.out_row + v * kLanes);
      }
    }
    const float* const a = p.a + i * p.a_row;
    for (std::size_t k = 0; k < p.inner; ++k) {
      const float* const b = p.b + k * p.b_row + j;
      Floats row[kVectors];
      for (std::size_t v = 0; v < kVectors; ++v) row[v] = load(b + v * kLanes);
      for (std::size_t r = 0; r < kRows; ++r) {
        const float weight = a[r * p.a_row + k * p.a_term];
        for (std::size_t v = 0; v < kVectors; ++v) sum[r][v] += weight * row[v];
      }
    }
    for (std::size_t r = 0; r < kRows; ++r) {
      for (std::size_t v = 0; v < kVectors; ++v) store(out + r * p.out_row + v * kLanes, sum[r][v]);
    }
  }

  template <std::size_t kVectors>
  static void sum_columns(const Product& p, std::size_t j) noexcept {
    std::size_t i = 0;
    for (; i + kSumRows <= p.rows; i += kSumRows) sum_tile<kSumRows, kVectors>(p, i, j);
    for (; i + 2 <= p.rows; i += 2) sum_tile<2, kVectors>(p, i, j);
    for (; i < p.rows; ++i) sum_tile<1, kVectors>(p, i, j);
  }

  static void sums_in_place(const Product& p) {
    std::size_t j = 0;
    for (; j + kPanel <= p.columns; j += kPanel) sum_columns<kSumVectors>(p, j);
    for (; j + kLanes <= p.columns; j += kLanes) sum_columns<1>(p, j);
    for (std::size_t i = 0; i < p.rows; ++i) {
      for (std::size_t c = j; c < p.columns; ++c) {
        float total = p.into == Into::kAdd ? p.out[i * p.out_row + c] : 0;
        for (std::size_t k = 0; k < p.inner; ++k) {
          total += p.a[i * p.a_row + k * p.a_term] * p.b[k * p.b_row + c];
        }
        p.out[i * p.out_row + c] = total;
      }
    }
  }

  // Rows of a, so that those of a tile lie side by side for each term.
  static void pack_rows(Product& p, float* packed) noexcept {
    for (std::size_t i = 0; i < p.rows; i += kSumRows) {
      const std::size_t n = i + kSumRows < p.rows ? kSumRows : p.rows - i;
      float* to = packed + i * p.inner;
      const float* from = p.a + i;
      for (std::size_t k = 0; k < p.inner; ++k, to += kSumRows, from += p.a_term) {
        if (n == kSumRows) {
          std::memcpy(to, from, kSumRows * sizeof(float));
        } else {
          std::memcpy(to, from, n * sizeof(float));
        }
      }
    }
  }

  // All columns of a block of rows and terms, panel after panel, each of which is copied so that
  // its rows follow each other: as they are they may be a power of two apart, and take each other's
  // places in the caches.
  static void sum_block(const Product& p, float* rows, float* panel) noexcept {
    Product block = p;
    const bool packs = p.a_term != 1;
    if (packs) pack_rows(block, rows);
    for (std::size_t j = 0; j + kPanel <= p.columns; j += kPanel) {
      for (std::size_t k = 0; k < p.inner; ++k) {
        std::memcpy(panel + k * kPanel, p.b + k * p.b_row + j, kPanel * sizeof(float));
      }
      Product tiles = p;
      tiles.b = panel;
      tiles.b_row = kPanel;
      for (std::size_t i = 0; i < p.rows; i += kSumRows) {
        tiles.out = p.out + i * p.out_row + j;
        tiles.a = packs ? rows + i * p.inner : p.a + i * p.a_row;
        if (packs) tiles.a_term = kSumRows;
        tiles.rows = i + kSumRows < p.rows ? kSumRows : p.rows - i;
        sum_columns<kSumVectors>(tiles, 0);
      }
    }
    const std::size_t done = p.columns / kPanel * kPanel;
    block.b += done;
    block.out += done;
    block.columns -= done;
    sums_in_place(block);
  }

  // Each sum goes on where the terms before left it, so that blocks change no bit.
  [[gnu::noinline]] static void sums_in_blocks(const Product& p) noexcept {
    alignas(64) float rows[kSumBlock * kTerms], panel[kTerms * kPanel];
    for (std::size_t k = 0; k == 0 || k < p.inner; k += kTerms) {
      for (std::size_t i = 0; i < p.rows; i += kSumBlock) {
        Product block = p;
        block.rows = i + kSumBlock < p.rows ? kSumBlock : p.rows - i;
        block.inner = k + kTerms < p.inner ? kTerms : p.inner - k;
        block.a += i * p.a_row + k * p.a_term;
        block.b += k * p.b_row;
        block.out += i * p.out_row;
        if (k != 0) block.into = Into::kAdd;
        sum_block(block, rows, panel);
      }
    }
  }

  static void sums(const Product& p) {
    p.rows < kPackedRows ? sums_in_place(p) : sums_in_blocks(p);
  }

  // exp, within 2 units in the last place; below -87 it stays at 1.6e-38.
  [[gnu::always_inline]] static Floats exponential(Floats x) noexcept {
    x = x < -87.0f ? Floats{} - 87.0f : x;
    x = x > 88.0f ? Floats{} + 88.0f : x;
    const Floats shifted = x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: rounds to an integer
    const Floats n = shifted - 12582912.0f;
    const Floats r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    Floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    Words bits;
    std::memcpy(&bits, &p, kBytes);
    Words whole;  // n in the low bits, which is all that the shift leaves
    std::memcpy(&whole, &shifted, kBytes);
    bits += whole << 23;
    Floats result;
    std::memcpy(&result, &bits, kBytes);
    return x == x ? result : x;
  }

  struct Activated {
    Floats value;
    Floats slope;
  };

  // The normal distribution by Abramowitz and Stegun 7.1.26: within 8e-8.
  [[gnu::always_inline]] static Activated gelu(Floats z) noexcept {
    const Floats x = (z < 0 ? -z : z) * 0.70710678f;
    const Floats t = 1.0f / (1.0f + 0.3275911f * x);
    const Floats e = exponential(-x * x);
    Floats tail = t * 1.061405429f - 1.453152027f;
    tail = tail * t + 1.421413741f;
    tail = tail * t - 0.284496736f;
    tail = tail * t + 0.254829592f;
    tail = 0.5f * tail * t * e;
    const Floats phi = z > 0 ? 1.0f - tail : tail;
    return {z * phi, phi + z * e * 0.39894228f};
  }

  [[gnu::always_inline]] static Activated silu(Floats z) noexcept {
    const Floats s = 1.0f / (1.0f + exponential(-z));
    return {z * s, s + z * s * (1.0f - s)};
  }

  [[gnu::always_inline]] static Activated relu(Floats z) noexcept {
    const Floats zero = z * 0;  // NaN stays
    return {z > 0 ? z : zero, z > 0 ? zero + 1.0f : zero};
  }

  template <Activation kActivation>
  [[gnu::always_inline]] static Activated activated(Floats z) noexcept {
    if constexpr (kActivation == Activation::kRelu) return relu(z);
    if constexpr (kActivation == Activation::kGelu) return gelu(z);
    return silu(z);
  }

  // body(at) for each vector of a row, body(at, n) for what is left of it.
  template <class Body>
  [[gnu::always_inline]] static void each_vector(std::size_t columns, const Body& body) {
    std::size_t c = 0;
    for (; c + kLanes <= columns; c += kLanes) body(c, kLanes);
    if (c < columns) body(c, columns - c);
  }
  [[gnu::always_inline]] static Floats load(const float* from, std::size_t n) noexcept {
    if (n == kLanes) return load(from);
    Floats v = {};
    std::memcpy(&v, from, n * sizeof(float));
    return v;
  }
  [[gnu::always_inline]] static void store(float* to, const Floats& v, std::size_t n) noexcept {
    if (n == kLanes) return store(to, v);
    std::memcpy(to, &v, n * sizeof(float));
  }

  template <Activation kActivation>
  static void activate_as(const HiddenBlock& h) {
    for (std::size_t r = 0; r < h.rows; ++r) {
      float* const hidden = h.hidden + r * h.stride;
      float* const active = h.active + r * h.stride;
      each_vector(h.columns, [&](std::size_t c, std::size_t n) {
        const Floats z = load(hidden + c, n) + load(h.b1 + c, n);
        store(hidden + c, z, n);
        store(active + c, activated<kActivation>(z).value, n);
      });
      if (h.partner == nullptr) continue;
      float* const partner = h.partner + r * h.stride;
      each_vector(h.columns, [&](std::size_t c, std::size_t n) {
        const Floats g = load(partner + c, n) + load(h.b3 + c, n);
        store(partner + c, g, n);
        store(active + c, load(active + c, n) * g, n);
      });
    }
  }

  template <Activation kActivation>
  static void gradient_as(const HiddenGradient& g) {
    for (std::size_t r = 0; r < g.block.rows; ++r) {
      const std::size_t at = r * g.block.stride;
      each_vector(g.block.columns, [&](std::size_t c, std::size_t n) {
        const Activated a = activated<kActivation>(load(g.block.hidden + at + c, n));
        Floats dactive = load(g.dhidden + at + c, n);
        if (g.dpartner != nullptr) {
          store(g.dpartner + at + c, dactive * a.value, n);
          dactive *= load(g.block.partner + at + c, n);
        }
        store(g.dhidden + at + c, dactive * a.slope, n);
      });
    }
  }

  static void activate(const HiddenBlock& h) {
    if (h.activation == Activation::kRelu) return activate_as<Activation::kRelu>(h);
    if (h.activation == Activation::kGelu) return activate_as<Activation::kGelu>(h);
    activate_as<Activation::kSilu>(h);
  }
  static void activation_gradient(const HiddenGradient& g) {
    if (g.block.activation == Activation::kRelu) return gradient_as<Activation::kRelu>(g);
    if (g.block.activation == Activation::kGelu) return gradient_as<Activation::kGelu>(g);
    gradient_as<Activation::kSilu>(g);
  }
  static constexpr Kernels all() { return {8 * kBytes, dots, sums, activate, activation_gradient}; }
};

}  // namespace
}  // namespace motley::moe::expert
