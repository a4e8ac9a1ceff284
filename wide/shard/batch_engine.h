// wide/shard/batch_engine.h: computes with a batch whose weights have come: the engine of
// kernel/flow.h on a state that holds the batch's slots alone, with gradients beside weights.
#pragma once

#include <memory>
#include <span>

#include "wide/shard/exchange.h"
#include "wide/shard/hot_block.h"

namespace motley::wide {

class BatchEngine {
 public:
  BatchEngine(const Model& model, int threads);

  // Sets step.gradients, adds those of hot slots to hot.gradients(). Returns the sum of the losses.
  double train(Step& step, HotBlock& hot);
  // [rows of the batch]
  void score(const Step& step, const HotBlock& hot, std::span<float> out);

 private:
  void load(const Step& step, const HotBlock& hot);
  std::span<float> state() { return std::span(state_).first(layout_.size()); }

  ModelOptions options_;
  std::size_t fields_;
  int threads_;
  Layout layout_;  // of as many slots as a batch has had, and some more
  std::unique_ptr<Flow> flow_;
  Floats state_;
};

}  // namespace motley::wide
