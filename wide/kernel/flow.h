// wide/kernel/flow.h: runs a model's three functions over rows on the CPU, on some threads.
//
// Row by row (batch_rows 1): one pass reads a row's weights (gather), scores the row, and updates
// the weights (scatter, the optimizer's rule) while they are still in the cache. On several
// threads, each has a copy of the hot slots (replicas.h) and all write the others as they come: a
// lost update is a rare one among many. F. Niu, B. Recht, C. Ré, S. Wright, "Hogwild!", NIPS 2011.
//
// By batches: all rows of a batch see the same weights, then each slot is updated once, by its
// edges in the order of rows (batch.h): the same bits on any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "wide/model.h"
#include "wide/samples.h"

namespace motley::wide {

struct UpdateOptions {
  float learning_rate = 0.1f;
  float learning_rate_factors = -1;  // below 0: learning_rate
  float l1 = 0;  // of a linear weight; like l2, for every entry that uses it (FTRL: as in its rule)
  float l2 = 0;
  float l1_factors = 0;  // the same for factors
  float l2_factors = 0;
  // Rows whose gradients are taken at the same weights and then applied as one sum; 1: each row is
  // applied at once, in the pass that reads it.
  std::size_t batch_rows = 1;
  // Row by row on several threads: rows of a thread between two merges of the copies of hot slots;
  // 0: a good number. What is merged is scaled down where it is larger.
  std::size_t merge_rows = 0;
};

struct Job;  // kernels.h
// `samples` and `options` as the loops of a model want them.
Job job_of(const ModelOptions& model, const Layout& layout, const Samples& samples,
           const UpdateOptions& options);

// Holds scratch memory and threads only; the state is the caller's, laid out by Layout. One caller
// at a time.
class Flow {
 public:
  virtual ~Flow() = default;
  // Trains on `rows` of `samples`, in that order. Returns the sum of their losses, each measured
  // before its row changed anything.
  virtual double train(const Samples& samples, std::span<const std::uint64_t> rows,
                       const UpdateOptions& options, std::span<float> state) = 0;
  // out[i] becomes the score of row i. All rows; the same bits on any number of threads.
  virtual void score(const Samples& samples, std::span<const float> state,
                     std::span<float> out) = 0;
};

// `lanes`: of the vectors to use, at most the processor's own; 0: those.
struct FlowOptions {
  int threads = 1;
  int lanes = 0;
};
std::unique_ptr<Flow> make_flow(const ModelOptions& options, const Layout& layout,
                                const FlowOptions& flow = {});

}  // namespace motley::wide
