#include "wide/shard/batch_engine.h"

#include <algorithm>
#include <numeric>

namespace motley::wide {
namespace {

ModelOptions summing(ModelOptions options) {
  options.optimizer = Optimizer::kGradientSum;
  return options;
}

}  // namespace

BatchEngine::BatchEngine(const Model& model, int threads)
    : options_(summing(model.options())), fields_(model.fields().size()), threads_(threads) {}

void BatchEngine::load(const Step& step, const HotBlock& hot) {
  const std::size_t n = step.batch.slots.size();
  if (flow_ == nullptr || layout_.slots < n) {
    layout_ = Layout::of(options_, n + n / 4 + 1, fields_);
    flow_ = make_flow(options_, layout_, {.threads = threads_});
    state_.resize(layout_.size());
  }
  std::copy_n(hot.state().data(), layout_.shared, state_.data());
  std::fill_n(state_.data() + layout_.shared, layout_.shared, 0.0f);
  const std::size_t sent = factors_sent(layout_);
  std::vector<float> of_hot(sent + 1);
  for (std::size_t i = 0; i < n; ++i) {
    const float* from = step.weights.data() + i * of_hot.size();
    if (step.batch.slots[i] < hot.slots()) {
      hot.read(step.batch.slots[i], of_hot.data());
      from = of_hot.data();
    }
    float* const factors = state_.data() + layout_.factors_of(i);
    std::copy_n(from, sent, factors);
    std::fill_n(factors + sent, 2 * layout_.width - sent, 0.0f);
    state_[layout_.linear(i)] = from[sent];
    state_[layout_.linear(i) + 1] = 0;
  }
}

double BatchEngine::train(Step& step, HotBlock& hot) {
  const Samples& samples = step.batch.samples;
  step.gradients.resize(step.weights.size());
  if (samples.rows() == 0) return 0;
  load(step, hot);
  std::vector<std::uint64_t> rows(samples.rows());
  std::iota(rows.begin(), rows.end(), std::uint64_t{0});
  // 1 would be row by row.
  const UpdateOptions update{.batch_rows = std::max<std::size_t>(rows.size(), 2)};
  const double loss = flow_->train(samples, rows, update, state());
  const std::size_t sent = factors_sent(layout_);
  for (std::size_t i = 0; i < step.batch.slots.size(); ++i) {
    float* const to = step.gradients.data() + i * (sent + 1);
    std::copy_n(state_.data() + layout_.factors_of(i) + layout_.width, sent, to);
    to[sent] = state_[layout_.linear(i) + 1];
    if (step.batch.slots[i] < hot.slots()) hot.add(step.batch.slots[i], to, step.batch.entries[i]);
  }
  const std::span<float> shared = hot.shared_gradient();
  for (std::size_t i = 0; i < shared.size(); ++i) shared[i] += state_[layout_.shared + i];
  return loss;
}

void BatchEngine::score(const Step& step, const HotBlock& hot, std::span<float> out) {
  if (out.empty()) return;
  load(step, hot);
  flow_->score(step.batch.samples, state(), out);
}

}  // namespace motley::wide
