// wide/kernel/replicas.h: each thread's copy of what all threads write often: the hot slots and
// what all samples share. Threads train on their copies and merge them into the state now and then:
// the state takes the sum of what they changed since, weights and the optimizer's numbers alike;
// FTRL's weights follow anew of the sums of its numbers.
//
// Lines that two cores write in turn travel between them at each write; on two threads that costs
// more than the second thread brings.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "wide/kernel/kernels.h"

namespace motley::wide {

class Replicas {
 public:
  Replicas(const Kernels& kernels, const Layout& layout, int threads);

  // Rows of a thread between two merges, if nothing else is wished.
  std::size_t merge_rows() const noexcept;
  // By which to scale what a thread learnt in `rows` rows.
  float scale(Optimizer optimizer, std::size_t rows) const noexcept;

  // The copies of `thread` become what the state has. Where it finds weights from now on.
  Tables take(int thread, float* state);
  // What `thread` changed, times `scale`, goes into the state, and what others changed comes back.
  void merge(int thread, float* state, const Job& job, float scale);

 private:
  struct Copy {
    Floats own;
    Floats base;  // `own` as of the last merge
  };
  // n floats that lie at `state` in the state, and at `copy` in a copy.
  struct Piece {
    std::size_t state;
    std::size_t copy;
    std::size_t n;
  };
  struct Stripe {
    std::vector<Piece> pieces;
    std::mutex mutex;
  };
  template <class Body>
  void each_piece(int thread, Body body);
  void follow(const Piece& piece, float* state, const Job& job) const;

  Kernels kernels_;
  Layout layout_;
  std::size_t hot_;
  std::size_t linear_begin_;   // in a copy
  std::size_t factors_begin_;  // in a copy
  std::vector<Copy> copies_;
  std::vector<Stripe> stripes_;
};

}  // namespace motley::wide
