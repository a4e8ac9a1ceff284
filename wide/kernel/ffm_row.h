// wide/kernel/ffm_row.h: the factors of one row of a field-aware machine (ffm.h) that has exactly
// one feature of each field, in the order of fields, all of different slots.
//
// Its pairs are met in blocks, of C fields each, where a vector holds a feature's factors for C
// fields: the C rows of block F, at the fields of block G, lie against the C rows of G, at the
// fields of F, turned. So weights come once for the score and once for the step, and nothing is
// written in between: the first cache holds them, beside which a tile of sums would not fit.
#pragma once

#include <cstddef>
#include <utility>

#include "wide/kernel/pack.h"
#include "wide/optimizer.h"

namespace motley::wide {

// kBlock: factors of a feature for one field, as stored.
template <class A, class O, int kBlock>
class FfmRow {
 public:
  static constexpr int kLanes = A::kLanes;
  static constexpr int C = kLanes / kBlock;  // fields in a vector
  static constexpr std::size_t kMost = 64;   // fields
  using P = Pack<A, kLanes>;
  static_assert(C == 1 || C == 2 || C == 4);

  // width: of a plane of a feature's factors.
  [[gnu::always_inline]] explicit FfmRow(std::size_t width) : width_(width) {
    // What optimizers divide by is their last plane.
    if (O::kPlanes == 1) return;
    for (std::size_t i = 0; i < width; ++i) nowhere_[(O::kPlanes - 1) * width + i] = 1;
  }
  FfmRow(const FfmRow&) = delete;  // it points into itself
  FfmRow& operator=(const FfmRow&) = delete;

  // at(i): where the factors of the row's i-th feature are. values: [n], or [1] where all features
  // count the same. Returns what all pairs bring to the score.
  template <class At>
  [[gnu::always_inline]] float gather(std::size_t n, const float* values, bool same, At at) {
    blocks_ = (n + C - 1) / C;
    same_ = same;
    for (std::size_t i = 0; i < n; ++i) {
      at_[i] = at(i);
      values_[i] = values[same ? 0 : i];
    }
    for (std::size_t i = n; i < blocks_ * C; ++i) {  // rows that fill a block up lie nowhere
      at_[i] = nowhere_;
      values_[i] = 0;
    }
    return same ? values[0] * values[0] * score<true>() : score<false>();
  }

  // `slope`: of the loss by the score.
  [[gnu::always_inline]] void scatter(float slope, const Rates& rates) {
    if (!same_) return learn<false>(slope, rates);
    const float value = values_[0];
    for (std::size_t i = 0; i < blocks_ * C; ++i) values_[i] *= slope * value;
    learn<true>(slope, rates);
  }

 private:
  using V = Vector<kLanes>;
  using Lanes = std::make_integer_sequence<int, kLanes>;

  // kSame: all features count the same, for which the caller makes up.
  template <bool kSame>
  [[gnu::always_inline]] float score() const {
    P across(0), within(0);
    for (std::size_t f = 0; f < blocks_; ++f) {
      P here[C], there[C];
      load(f, f, here);
      turn(here, there);
      clear_own(there);
      within = within + dot<kSame>(here, there, f, f);
      for (std::size_t g = f + 1; g < blocks_; ++g) {
        load(f, g, here);
        load(g, f, there);
        turn(there, there);
        across = across + dot<kSame>(here, there, f, g);
      }
    }
    return total(across) + total(within) / 2;
  }

  // kSame: values_ are what gradients are multiples of.
  template <bool kSame>
  [[gnu::always_inline]] void learn(float slope, const Rates& rates) {
    for (std::size_t f = 0; f < blocks_; ++f) {
      P here[C], there[C];
      load(f, f, here);
      turn(here, there);
      clear_own(there);
      step<kSame>(f, f, here, there, slope, rates);
      for (std::size_t g = f + 1; g < blocks_; ++g) {
        P turned_here[C], turned_there[C];
        load(f, g, here);
        load(g, f, there);
        turn(here, turned_here);
        turn(there, turned_there);
        step<kSame>(f, g, here, turned_there, slope, rates);
        step<kSame>(g, f, there, turned_here, slope, rates);
      }
    }
  }

  // The rows of block f, at the fields of block g.
  [[gnu::always_inline]] void load(std::size_t f, std::size_t g, P (&rows)[C]) const {
#pragma GCC unroll 4
    for (int i = 0; i < C; ++i) rows[i] = P::load(at_[f * C + i] + g * kLanes);
  }

  // Sum over rows i of `here`, of block f, of x_i <here_i, x there_i>; kSame: of <here_i, there_i>.
  template <bool kSame>
  [[gnu::always_inline]] P dot(const P (&here)[C], const P (&there)[C], std::size_t f,
                               std::size_t g) const {
    P sum(0);
    if constexpr (kSame) {
#pragma GCC unroll 4
      for (int i = 0; i < C; ++i) sum = sum + here[i] * there[i];
      return sum;
    }
#pragma GCC unroll 4
    for (int i = 0; i < C; ++i) sum = sum + P(values_[f * C + i]) * (here[i] * there[i]);
    return sum * values_of(g);
  }

  // What the features of a block count, each as often as a field has factors.
  [[gnu::always_inline]] P values_of(std::size_t g) const {
    return spread(P::load(values_ + g * C), Lanes());
  }
  template <int... l>
  [[gnu::always_inline]] static P spread(P values, std::integer_sequence<int, l...>) {
    return P(V(__builtin_shufflevector(values.v, values.v, (l / kBlock)...)));
  }

  // The rows of block f at the fields of block g, `here`, learn from those that they meet.
  template <bool kSame>
  [[gnu::always_inline]] void step(std::size_t f, std::size_t g, const P (&here)[C],
                                   const P (&there)[C], float slope, const Rates& rates) {
    const P others = kSame ? P(1) : P(slope) * values_of(g);
#pragma GCC unroll 4
    for (int i = 0; i < C; ++i) {
      float* const at = at_[f * C + i] + g * kLanes;
      P s[O::kPlanes];
      s[0] = here[i];
#pragma GCC unroll 4
      for (int p = 1; p < O::kPlanes; ++p) s[p] = P::load(at + p * width_);
      const P own(values_[f * C + i]);
      O::step(s, (kSame ? own : own * others) * there[i], rates);
#pragma GCC unroll 4
      for (int p = 0; p < O::kPlanes; ++p) s[p].store(at + p * width_);
    }
  }

  // to[i], field j becomes from[j], field i.
  [[gnu::always_inline]] static void turn(const P (&from)[C], P (&to)[C]) {
    if constexpr (C == 1) {
      to[0] = from[0];
    } else if constexpr (C == 2) {
      const P a = from[0], b = from[1];
      to[0] = pick<0, 2>(a, b);
      to[1] = pick<1, 3>(a, b);
    } else {
      const P a = pick<0, 1, 4, 5>(from[0], from[1]);
      const P b = pick<2, 3, 6, 7>(from[0], from[1]);
      const P c = pick<0, 1, 4, 5>(from[2], from[3]);
      const P d = pick<2, 3, 6, 7>(from[2], from[3]);
      to[0] = pick<0, 2, 4, 6>(a, c);
      to[1] = pick<1, 3, 5, 7>(a, c);
      to[2] = pick<0, 2, 4, 6>(b, d);
      to[3] = pick<1, 3, 5, 7>(b, d);
    }
  }
  // Fields of a, then of b, by their numbers.
  template <int... fields>
  [[gnu::always_inline]] static P pick(P a, P b) {
    return pick_lanes(a, b, std::integer_sequence<int, fields...>(), Lanes());
  }
  template <int... fields, int... l>
  [[gnu::always_inline]] static P pick_lanes(P a, P b, std::integer_sequence<int, fields...>,
                                             std::integer_sequence<int, l...>) {
    constexpr int of[] = {fields...};
    return P(V(__builtin_shufflevector(a.v, b.v, (of[l / kBlock] * kBlock + l % kBlock)...)));
  }

  // A feature does not meet itself: field i of row i becomes 0.
  [[gnu::always_inline]] static void clear_own(P (&rows)[C]) {
    clear_all(rows, std::make_integer_sequence<int, C>());
  }
  template <int... i>
  [[gnu::always_inline]] static void clear_all(P (&rows)[C], std::integer_sequence<int, i...>) {
    ((rows[i] = without<i>(rows[i], Lanes())), ...);
  }
  template <int own, int... l>
  [[gnu::always_inline]] static P without(P row, std::integer_sequence<int, l...>) {
    return P(V(__builtin_shufflevector(row.v, V{}, (l / kBlock == own ? kLanes + l : l)...)));
  }

  std::size_t width_;
  std::size_t blocks_ = 0;
  bool same_ = false;
  float* at_[kMost];
  alignas(64) float values_[kMost + kLanes] = {};
  alignas(64) float nowhere_[O::kPlanes * (kMost * kBlock + kLanes)] = {};
};

}  // namespace motley::wide
