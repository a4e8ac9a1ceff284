// runtime/loss_scale.h: training in 16 bits: float32 master parameters, 16-bit copies that forward
// and backward compute with, and a scale that keeps small gradients from becoming 0.
//
//   MixedPrecision mixed(master.values(), DType::kFloat16);
//   backward(mixed.values(), mixed.gradients(), mixed.loss_scale());   // of loss * scale
//   comm.all_reduce(mixed.gradients(), ReduceOp::kAverage).wait();
//   if (mixed.unscale(master.gradients())) {                           // false: left out
//     clip_by_global_norm(…);
//     optimizer.update(master.values(), master.gradients());
//     mixed.refresh();
//   }
//
// P. Micikevicius et al., "Mixed Precision Training", ICLR 2018, sections 3.1 and 3.2. With several
// workers unscale() comes after the all-reduce: an infinity or NaN of one worker is then in the
// gradients of all, and all leave the step out.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/view.h"
#include "runtime/state.h"

namespace motley::runtime {

struct LossScaleOptions {
  double initial = 65536;
  double growth = 2;     // factor after growth_interval finite steps; at least 1
  double backoff = 0.5;  // factor after a step that was not finite; in (0, 1)
  std::int64_t growth_interval =
      2000;          // 0: the scale is fixed, as bfloat16 allows with initial = 1
  double least = 1;  // bounds of the scale
  double most = 16777216;
};

// The dynamic scale alone.
class LossScale {
 public:
  // Throws kInvalid for options out of the ranges above.
  explicit LossScale(const LossScaleOptions& options);

  double value() const noexcept { return value_; }
  // After each step: were its gradients finite?
  void update(bool finite) noexcept;
  void list(State& state);

 private:
  LossScaleOptions options_;
  double value_;
  std::int64_t finite_steps_ = 0;  // since the scale changed
};

class MixedPrecision {
 public:
  // master [n] float32, borrowed. Throws kInvalid unless it is, and `dtype` float16 or bfloat16.
  MixedPrecision(View master, DType dtype, const LossScaleOptions& options = {});

  // [n] of dtype: the copies to compute with, and where backward leaves the gradients of the loss
  // times loss_scale().
  View values() noexcept { return {values_.data(), master_.count, dtype_}; }
  View gradients() noexcept { return {gradients_.data(), master_.count, dtype_}; }
  double loss_scale() const noexcept { return scale_.value(); }
  std::int64_t skipped() const noexcept { return skipped_; }  // steps left out so far

  // out [n] float32 becomes the gradients divided by the scale, and the scale follows. False, `out`
  // as it was, if one of them is not finite: make no step.
  bool unscale(View out) { return unscale(out, gradients()); }
  // The same of gradients that have been added up elsewhere: [n], 16 bits or float32, which may be
  // `out`.
  bool unscale(View out, ConstView gradients);
  // Copies the master parameters again: after each update, and after a checkpoint was loaded.
  void refresh();
  // Scale and counters. The master parameters are the model's to list, and the copies follow them.
  void list(State& state);

 private:
  View master_;
  DType dtype_;
  LossScale scale_;
  std::int64_t skipped_ = 0;
  std::vector<std::byte> values_;
  std::vector<std::byte> gradients_;
};

}  // namespace motley::runtime
