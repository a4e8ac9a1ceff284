// wide/kernel/kernels.h: the loops of a pass over rows, compiled for one kind of model, one
// optimizer and one width of vectors (loops.h), behind plain pointers; flow.cc drives them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wide/kernel/loss_sum.h"
#include "wide/model.h"

namespace motley::wide {

// Samples (samples.h) and what a pass does with them.
struct Job {
  const std::uint64_t* row_begin = nullptr;
  const std::uint32_t* slots = nullptr;
  const float* values = nullptr;
  const std::uint16_t* fields = nullptr;
  const float* labels = nullptr;
  const float* weights = nullptr;  // null: all 1
  bool uniform = false;
  bool complete = false;
  bool distinct = false;

  Layout layout;
  Loss loss = Loss::kLogistic;
  Optimizer optimizer = Optimizer::kAdaGrad;
  Rates linear;   // of linear weights
  Rates factors;  // of factors
  Rates shared;   // of what all samples share
};

// Where a thread finds the weights. Slots below `hot` are in a copy of its own, as is `shared`
// where there are copies.
struct Tables {
  float* shared = nullptr;
  float* linear = nullptr;
  float* factors = nullptr;
  std::uint32_t hot = 0;
  float* hot_linear = nullptr;
  float* hot_factors = nullptr;
};

// The rates of update `t`, from 1.
Rates rates_of_step(Optimizer optimizer, const Rates& rates, float t) noexcept;

// What the samples of a batch sent: their sums, and slopes by their scores.
struct BatchSums {
  std::byte* sums = nullptr;  // [rows][sum_bytes]
  float* scratch = nullptr;   // [rows][scratch_floats]
  float* slopes = nullptr;    // [rows]
};

// Edges of a batch that meet in one slot, by row.
struct Segment {
  std::uint32_t slot;
  std::uint32_t begin;  // in the arrays of the batch
  std::uint32_t end;
};
struct Edge {
  std::uint32_t row;  // in the batch
  std::uint16_t field;
  float value;
};

// Weights of one kind: `units` times n neighbours, `unit` floats apart; a weight's planes are
// `plane` floats apart.
struct Weights {
  float* first;
  std::size_t units;
  std::size_t unit;
  std::size_t n;
  std::size_t plane;
};

// Gradients of slots, summed up elsewhere.
struct SlotGradients {
  const std::uint32_t* slots;  // [n]
  const float* sums;           // [n][width + 1]: of factors, then of the linear weight
  const float* entries;        // [n]: edges that they are of; 0: the slot stays as it is
  std::size_t n;
};

struct Kernels {
  std::size_t sum_bytes = 0;
  std::size_t scratch_floats = 0;  // of a sum; zeros at first

  // Trains on rows[0 … n) one after the other: gather, score, scatter and update in one pass.
  // Without factors a row is scored before the step of the one before it.
  void (*train)(const Job&, const std::uint64_t* rows, std::size_t n, const Tables&, float* scratch,
                LossSum&) = nullptr;
  // out[r] becomes the score of row r, first <= r < last.
  void (*score)(const Job&, std::size_t first, std::size_t last, const Tables&, float* scratch,
                float* out) = nullptr;

  // The same in parts, for batches: sums and slopes of samples [first, last) of the batch; …
  void (*gather)(const Job&, const std::uint64_t* rows, std::size_t first, std::size_t last,
                 const Tables&, const BatchSums&, LossSum&) = nullptr;
  // … updates of slots, each by the sum of its edges' gradients, in the order of rows; …
  void (*update)(const Job&, const Segment* segments, std::size_t n, const Edge* edges,
                 const Tables&, const BatchSums&, float* gradient) = nullptr;
  // … and of what all samples share, except that `rows` are counted as one update.
  void (*update_shared)(const Job&, std::size_t rows, const Tables&, const BatchSums&,
                        float* gradient) = nullptr;

  // Steps by gradients that come from elsewhere, as update() by those of its edges: of slots, …
  void (*apply)(const Job&, const SlotGradients&, const Tables&) = nullptr;
  // … and of what all samples share, [Layout::shared].
  void (*apply_shared)(const Job&, const float* gradient, const Tables&) = nullptr;

  // all += scale * (own - base), base = own = all, for n floats: a thread's copy meets the others'.
  void (*merge)(float* all, float* own, float* base, std::size_t n, float scale) = nullptr;
  // Where the optimizer keeps numbers of which the weight follows, else null: weights do so again.
  void (*follow)(const Weights&, const Rates&) = nullptr;
};

enum class Lanes : std::uint8_t { k4 = 4, k8 = 8, k16 = 16 };  // of a processor's vectors
Lanes widest_lanes() noexcept;
// `lanes` at most those that this processor has.
Kernels make_kernels(const ModelOptions& options, const Layout& layout, Lanes lanes);

}  // namespace motley::wide
