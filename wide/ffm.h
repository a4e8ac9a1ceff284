// wide/ffm.h: field-aware factorization machine: a feature has k factors for each field that it may
// meet. What model.h says of the three functions holds here.
//
//   score = linear part + sum_{i<j} <W_i[f_j], W_j[f_i]> x_i x_j        f_i: the field of feature i
//
// Y. Juan, Y. Zhuang, W.-S. Chin, C.-J. Lin, "Field-aware Factorization Machines for CTR
// Prediction", RecSys 2016. What a sample sums up is a tile of field sums,
//   T[g][f] = sum over its features j of field f of W_j[g] x_j,
// so that the score is sum_{g<f} <T[g][f], T[f][g]> plus what meets within a field, and the
// gradient by W_i[f] is slope x_i T[f_i][f]: a whole row of the tile, streamed beside the weights.
// Cost per feature: fields times k, also where a field has many values.
#pragma once

#include <cstddef>

namespace motley::wide {

// P holds what is streamed; B one block of k factors or, if kBlocks = 0, a part of it.
template <class P, class B, int kBlocks = 0>
struct FieldAwareMachine {
  using Scalar = typename P::Scalar;
  static constexpr int kLanes = P::kLanes;
  static constexpr int kBlockLanes = B::kLanes;
  struct Sum {
    Scalar* tile;   // T: [fields][row]; cell (g, f) is k scalars
    Scalar* count;  // [fields]: the sample's features of each field
    Scalar* self;   // [fields]: sum over them of |W_i[f_i] x_i|^2
    // Of a complete sample: features whose weights wait for a whole P of each row of the tile.
    const Scalar* waiting[4];
    Scalar values[4];
  };

  int fields = 0;
  int block = 0;  // k, a multiple of B::kLanes
  int row = 0;    // of a feature's weights: fields * k, up to the next multiple of P::kLanes
  bool complete = false;  // every sample has exactly one feature of each field

  constexpr int k() const { return kBlocks > 0 ? kBlocks * B::kLanes : block; }
  constexpr std::size_t width() const { return static_cast<std::size_t>(row); }
  constexpr std::size_t tile_size() const { return static_cast<std::size_t>(fields * row); }
  // Zeros at first. What lies behind the last field of a row of the tile stays zero.
  constexpr std::size_t scratch() const {
    return tile_size() + static_cast<std::size_t>(2 * fields);
  }

  constexpr void clear(Sum& sum, Scalar* scratch) const {
    sum.tile = scratch;
    sum.count = scratch + tile_size();
    sum.self = sum.count + fields;
    if (complete) return;
    for (int f = 0; f < 2 * fields; ++f) sum.count[f] = 0;
  }

  constexpr void gather(Sum& sum, const Scalar* w, int field, Scalar x) const {
    if (complete) return gather_complete(sum, w, field, x);
    const bool first = sum.count[field] == 0;
    sum.count[field] += 1;
    for (int g = 0; g < fields; ++g) {
      for (int d = 0; d < k(); d += B::kLanes) {
        const B t = B::load(w + g * k() + d) * B(x);
        Scalar* const cell = sum.tile + g * row + field * k() + d;
        (first ? t : B::load(cell) + t).store(cell);
        if (g == field) sum.self[field] += total(t * t);
      }
    }
  }

  // The same terms in the same order, complete or not: the bits of a score do not depend on it.
  constexpr Scalar score(const Sum& sum) const {
    B pairs[4] = {B(0), B(0), B(0), B(0)};
    Scalar within = 0;
    for (int f = 0; f < fields; ++f) {
      if (!complete && sum.count[f] == 0) continue;
      int g = 0;
      for (; g + 4 <= f; g += 4) {
        meet(sum, f, g, pairs[0]);
        meet(sum, f, g + 1, pairs[1]);
        meet(sum, f, g + 2, pairs[2]);
        meet(sum, f, g + 3, pairs[3]);
      }
      for (; g < f; ++g) meet(sum, f, g, pairs[0]);
      const Scalar* const across = sum.tile + f * row;
      if (complete || sum.count[f] < 2) continue;
      B own(0);
      for (int d = 0; d < k(); d += B::kLanes) {
        const B t = B::load(across + f * k() + d);
        own = own + t * t;
      }
      within += (total(own) - sum.self[f]) / 2;
    }
    return total((pairs[0] + pairs[1]) + (pairs[2] + pairs[3])) + within;
  }

  // emit(d, gradient) for the weights w[d], w[d + 1], … of one P or B at a time.
  template <class Emit>
  constexpr void scatter(const Sum& sum, const Scalar* w, int field, Scalar x, Scalar slope,
                         Emit emit) const {
    const Scalar* const across = sum.tile + field * row;
    if (complete) {
      for (int d = 0; d < row; d += P::kLanes) emit(d, P(slope * x) * P::load(across + d));
      return;
    }
    for (int g = 0; g < fields; ++g) {
      if (sum.count[g] == 0 || (g == field && sum.count[g] < 2)) continue;
      for (int d = g * k(); d < (g + 1) * k(); d += B::kLanes) {
        B t = B::load(across + d);
        if (g == field) t = t - B::load(w + d) * B(x);
        emit(d, B(slope * x) * t);
      }
    }
  }

 private:
  // What fields f and g bring to the score.
  constexpr void meet(const Sum& sum, int f, int g, B& to) const {
    if (!complete && sum.count[g] == 0) return;
    const Scalar* const here = sum.tile + f * row + g * k();
    const Scalar* const there = sum.tile + g * row + f * k();
    for (int d = 0; d < k(); d += B::kLanes) to = to + B::load(here + d) * B::load(there + d);
  }
  // Features come in the order of fields.
  constexpr void gather_complete(Sum& sum, const Scalar* w, int field, Scalar x) const {
    if constexpr (kBlocks == 1 && P::kLanes == 4 * B::kLanes) {
      const int last = field & 3;
      sum.waiting[last] = w;
      sum.values[last] = x;
      if (last == 3) {
        turn_four(sum, field - 3);
      } else if (field == fields - 1) {
        for (int i = 0; i <= last; ++i) turn(sum, sum.waiting[i], field - last + i, sum.values[i]);
      }
    } else {
      turn(sum, w, field, x);
    }
  }
  // Puts the weights of the feature of `field` into its column of the tile.
  constexpr void turn(Sum& sum, const Scalar* w, int field, Scalar x) const {
    Scalar* const column = sum.tile + field * k();
    for (int d = 0; d < k(); d += B::kLanes) {
      for (int g = 0; g < fields; ++g) {
        (B::load(w + g * k() + d) * B(x)).store(column + g * row + d);
      }
      B(0).store(column + field * row + d);  // a feature does not meet itself
    }
  }
  // The same for the four fields from `field` on.
  constexpr void turn_four(Sum& sum, int field) const {
    const P values =
        join<P>(B(sum.values[0]), B(sum.values[1]), B(sum.values[2]), B(sum.values[3]));
    Scalar* const columns = sum.tile + field * k();
    for (int g = 0; g < fields; ++g) {
      const int d = g * k();
      const P four = join<P>(B::load(sum.waiting[0] + d), B::load(sum.waiting[1] + d),
                             B::load(sum.waiting[2] + d), B::load(sum.waiting[3] + d));
      (four * values).store(columns + g * row);
    }
    for (int i = 0; i < 4; ++i) B(0).store(columns + (field + i) * row + i * k());
  }
};

}  // namespace motley::wide
