// moe/expert_compute.h: the feed-forward networks of a rank's experts on the rows that came for
// them, forward and backward, in float32.
//
//   ExpertCompute compute({.width = 512, .hidden = 2048}, workers);
//   compute.forward({.slots = slots, .segments = segments, .in = x, .out = y}, saved);
//   compute.backward_rows({.slots = slots, .segments = segments, .in = dy, .out = dx}, saved);
//   compute.backward_weights({segments, x, dy, gradients}, saved);
//
// With a slot's W1, b1, W2, b2 and, in gated experts, W3, b3:
//   plain  y = W2 a(W1 x + b1) + b2
//   gated  y = W2 (a(W1 x + b1) * (W3 x + b3)) + b2      SwiGLU with SiLU; Shazeer 2020
// A shard of the hidden width holds rows of W1, b1, W3, b3 and columns of W2: the shards' outputs
// add up, with b2 in shard 0 alone. The work is cut into the same products for any number of
// threads: results depend neither on threads nor on which segments are computed together. A segment
// without rows is ordinary; the gradient of an expert without rows is zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "moe/layer_options.h"
#include "moe/scratch.h"
#include "moe/workers.h"

namespace motley::moe {

enum class ExpertForm : std::uint8_t { kPlain, kGated };

// One expert, or one shard of it.
struct ExpertShape {
  int width = 0;   // d
  int hidden = 0;  // h of this shard
  Activation activation = Activation::kGelu;
  ExpertForm form = ExpertForm::kPlain;

  // Numbers of a slot: w1 [h, d], b1 [h], w2 [d, h], b2 [d], and if gated w3 [h, d], b3 [h].
  std::size_t slot_count() const noexcept {
    const auto d = static_cast<std::size_t>(width), h = static_cast<std::size_t>(hidden);
    return (form == ExpertForm::kGated ? 3 : 2) * d * h + d +
           (form == ExpertForm::kGated ? 2 : 1) * h;
  }
};

// Whether b2 is added, and has a gradient: in one shard of each expert.
enum class OutputBias : std::uint8_t { kAdded, kElsewhere };

// What multiplies. kFastest may take other loops for more rows, so that the last bits of a row may
// depend on how many others its expert has; kOwn never does. Where vectors have 512 bits both are
// the same.
enum class Products : std::uint8_t { kFastest, kOwn };

// Rows [first, first + rows) of x, for the expert in `slot`.
struct ExpertSegment {
  std::size_t slot = 0;
  std::size_t first = 0;
  std::size_t rows = 0;
};

// Rows to rows, with the parameters of each slot.
struct ExpertRows {
  std::span<const std::span<const float>> slots;
  std::span<const ExpertSegment> segments;  // that do not overlap
  std::span<const float> in;                // [rows, d]: x, or dy
  std::span<float> out;                     // [rows, d]: y, or dx; of the segments' rows alone
};

struct ExpertGradients {
  std::span<const ExpertSegment> segments;  // all of the step; those of a slot in any fixed order
  std::span<const float> x;
  std::span<const float> dy;
  std::span<const std::span<float>> gradients;  // by slot, as its parameters; overwritten
};

// What backward needs of forward, [rows, h] each. Kept from step to step for its memory.
struct ExpertSaved {
  Scratch hidden, active, partner, dhidden, dpartner;
};

class ExpertCompute {
 public:
  // From here on OpenBLAS runs in the threads of its callers alone, in the whole process.
  //   workers  must live as long
  //   errors   kInvalid if a size is below 1
  //   bias     of each slot; empty: added in all
  ExpertCompute(const ExpertShape& shape, Workers& workers, std::vector<OutputBias> bias = {},
                Products products = Products::kFastest);

  const ExpertShape& shape() const noexcept { return shape_; }

  // Makes room for `rows` rows, whose former contents are lost.
  void reserve(ExpertSaved& saved, std::size_t rows, Fill fill = Fill::kAsItWas) const;

  //   saved  has room for all rows of `in`; forward fills it at those of the segments
  //   cost   2 d h multiplications a row (3 d h if gated), as many in backward_rows
  void forward(const ExpertRows& rows, ExpertSaved& saved) const;
  // As forward, of the same segments, before backward_weights.
  void backward_rows(const ExpertRows& rows, ExpertSaved& saved) const;
  void backward_weights(const ExpertGradients& step, const ExpertSaved& saved) const;

 private:
  bool adds_bias(std::size_t slot) const noexcept {
    return bias_.empty() || bias_[slot] == OutputBias::kAdded;
  }

  ExpertShape shape_;
  Workers* workers_;
  std::vector<OutputBias> bias_;
  Products products_;
};

}  // namespace motley::moe
