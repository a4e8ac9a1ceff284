// wide/kernel/linear_row.h: the linear weights of one row, A::kLanes at a time (pack.h), with all
// that an optimizer O keeps for them: gathered once, scored, stepped and scattered.
//
// A slot that a row has twice would lose the first of its steps, so for rows of distinct slots only
// (Samples::distinct).
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>

#include "wide/kernel/pack.h"
#include "wide/linear.h"
#include "wide/optimizer.h"

namespace motley::wide {

template <class A, class O>
class LinearRow {
 public:
  LinearRow() = default;
  LinearRow(const LinearRow&) = delete;  // it points into itself
  LinearRow& operator=(const LinearRow&) = delete;

  using P = Pack<A, A::kLanes>;
  static constexpr std::size_t kLanes = A::kLanes;
  static constexpr std::size_t kMost = 64;  // features of a row

  // at(i): where the numbers of the row's i-th feature are. values: [n], or [1] where all features
  // count the same. Returns the linear part of the score.
  template <class At>
  [[gnu::always_inline]] float gather(std::size_t n, const float* values, bool same, At at) {
    P sum(0);
    const std::size_t whole = n / kLanes * kLanes;
    for (std::size_t i = 0; i < whole; i += kLanes) {
      load(i, [&](std::size_t j) { return at(i + j); });
      Linear<P>::gather(sum, P::load(&planes_[0][i]), same ? P(*values) : P::load(values + i));
    }
    if (whole < n) {
      fill_rest(n - whole, values + (same ? 0 : whole), same,
                [&](std::size_t j) { return at(whole + j); });
      load(whole, [&](std::size_t j) { return rest_[j]; });
      Linear<P>::gather(sum, P::load(&planes_[0][whole]), P::load(rest_values_));
    }
    return Linear<P>::score(sum);
  }

  // The same arguments, and the slope of the loss by the score. kAnew: weights may have changed
  // since gather(), and are read again.
  template <bool kAnew, class At>
  [[gnu::always_inline]] void scatter(std::size_t n, const float* values, bool same, At at,
                                      float slope, const Rates& rates) {
    const std::size_t whole = n / kLanes * kLanes;
    for (std::size_t i = 0; i < whole; i += kLanes) {
      if constexpr (kAnew) load(i, [&](std::size_t j) { return at(i + j); });
      step(i, same ? P(*values) : P::load(values + i), slope, rates,
           [&](std::size_t j) { return at(i + j); });
    }
    if (whole < n) {
      if constexpr (kAnew) load(whole, [&](std::size_t j) { return rest_[j]; });
      step(whole, P::load(rest_values_), slope, rates, [&](std::size_t j) { return rest_[j]; });
    }
  }

 private:
  using V = Vector<A::kLanes>;
  // Two planes: pairs of floats, moved as one.
  using Pairs [[gnu::vector_size(sizeof(V))]] = double;
  static constexpr auto kAll = std::make_index_sequence<kLanes>();
  static constexpr std::size_t kHalf = kLanes / 2;

  template <class At>
  [[gnu::always_inline]] void fill_rest(std::size_t n, const float* values, bool same, At at) {
    for (std::size_t j = 0; j < n; ++j) {
      rest_[j] = at(j);
      rest_values_[j] = values[same ? 0 : j];
    }
    for (std::size_t j = n; j < filled_; ++j) {
      rest_[j] = nowhere_;
      rest_values_[j] = 0;
    }
    filled_ = n;
    for (int p = 0; p < 4; ++p) nowhere_[p] = p == 0 ? 0 : 1;
  }

  template <class At>
  [[gnu::always_inline]] void load(std::size_t i, At at) {
    if constexpr (O::kPlanes == 2) {
      constexpr auto half = std::make_index_sequence<kHalf>();
      split(i, std::bit_cast<V>(pairs_of(at, 0, half)), std::bit_cast<V>(pairs_of(at, kHalf, half)),
            kAll);
    } else {
      for (std::size_t j = 0; j < kLanes; ++j) {
        for (int p = 0; p < O::kPlanes; ++p) planes_[p][i + j] = at(j)[p];
      }
    }
  }
  template <class At, std::size_t... j>
  [[gnu::always_inline]] static Pairs pairs_of(At at, std::size_t first,
                                               std::index_sequence<j...>) {
    const auto pair = [](const float* from) {
      double both;
      std::memcpy(&both, from, sizeof both);
      return both;
    };
    return Pairs{pair(at(first + j))...};
  }
  template <std::size_t... j>
  [[gnu::always_inline]] void split(std::size_t i, V low, V high, std::index_sequence<j...>) {
    P(V(__builtin_shufflevector(low, high, (2 * j)...))).store(&planes_[0][i]);
    P(V(__builtin_shufflevector(low, high, (2 * j + 1)...))).store(&planes_[1][i]);
  }

  template <class At>
  [[gnu::always_inline]] void step(std::size_t i, P values, float slope, const Rates& rates,
                                   At at) {
    P s[O::kPlanes];
    for (int p = 0; p < O::kPlanes; ++p) s[p] = P::load(&planes_[p][i]);
    O::step(s, Linear<P>::scatter(values, P(slope)), rates);
    if constexpr (O::kPlanes == 2) {
      put_pairs(s[0].v, s[1].v, at, kAll);
    } else {
      for (int p = 0; p < O::kPlanes; ++p) s[p].store(&planes_[p][i]);
      for (std::size_t j = 0; j < kLanes; ++j) {
        for (int p = 0; p < O::kPlanes; ++p) at(j)[p] = planes_[p][i + j];
      }
    }
  }
  template <class At, std::size_t... j>
  [[gnu::always_inline]] static void put_pairs(V w, V g, At at, std::index_sequence<j...>) {
    const auto low =
        std::bit_cast<Pairs>(V(__builtin_shufflevector(w, g, (j / 2 + j % 2 * kLanes)...)));
    const auto high =
        std::bit_cast<Pairs>(V(__builtin_shufflevector(w, g, (kHalf + j / 2 + j % 2 * kLanes)...)));
    const auto put = [](float* to, double pair) { std::memcpy(to, &pair, sizeof pair); };
    (put(at(j), j < kHalf ? low[j % kHalf] : high[j % kHalf]), ...);
  }

  alignas(64) float planes_[O::kPlanes][kMost];
  // The last features, where they do not fill all lanes; the other lanes lie nowhere.
  alignas(64) float rest_values_[kLanes];
  float* rest_[kLanes];
  std::size_t filled_ = kLanes;
  float nowhere_[4];
};

}  // namespace motley::wide
