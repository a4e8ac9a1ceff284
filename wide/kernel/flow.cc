#include "wide/kernel/flow.h"

#include <cassert>
#include <cmath>
#include <vector>

#include "wide/fm.h"
#include "wide/logistic.h"

namespace motley::wide {
namespace {

template <class M, class Loss>
class CpuFlow final : public Flow {
 public:
  CpuFlow(M model, const Layout& layout) : model_(model), layout_(layout) {
    assert(layout.weights == static_cast<std::size_t>(model.weights()));
  }

  double train(const Samples& samples, std::span<const std::uint64_t> rows,
               const UpdateOptions& options, std::span<float> state) override {
    assert(state.size() == layout_.size());
    double loss = 0;
    if (options.batch_rows <= 1) {
      for (std::size_t i = 0; i < rows.size(); ++i) {
        if (i + kAhead < rows.size()) prefetch(samples, rows[i + kAhead], state.data());
        loss += train_row(samples, rows[i], options, state.data());
      }
      return loss;
    }
    for (std::size_t first = 0; first < rows.size(); first += options.batch_rows) {
      const std::size_t n = std::min(options.batch_rows, rows.size() - first);
      loss += train_batch(samples, rows.subspan(first, n), options, state.data());
    }
    return loss;
  }

  void score(const Samples& samples, std::span<const float> state,
             std::span<float> out) const override {
    assert(out.size() == samples.rows());
    for (std::size_t r = 0; r < out.size(); ++r) {
      Sum sum;
      out[r] = score_row(samples, r, state.data(), sum);
    }
  }

 private:
  using Sum = typename M::Sum;
  static constexpr std::size_t kAhead = 4;  // rows between a prefetch and the use
  static constexpr int kGradients = [] {
    if constexpr (requires { M::kCapacity; }) {
      return M::kCapacity + 1;
    } else {
      return 1;
    }
  }();

  std::size_t row_floats() const { return 2 * static_cast<std::size_t>(model_.weights()); }
  std::size_t row_at(std::uint32_t slot) const { return 2 + slot * row_floats(); }

  void prefetch(const Samples& samples, std::uint64_t row, const float* state) const {
    for (std::uint64_t e = samples.row_begin[row]; e < samples.row_begin[row + 1]; ++e) {
      const float* const at = state + row_at(samples.slots[e]);
      for (std::size_t f = 0; f < row_floats(); f += 16) __builtin_prefetch(at + f, 1);
    }
  }

  float score_row(const Samples& samples, std::uint64_t row, const float* state, Sum& sum) const {
    model_.clear(sum);
    const std::uint64_t end = samples.row_begin[row + 1];
    const std::uint32_t* const slots = samples.slots.data();
    const float* const values = samples.values.data();
    for (std::uint64_t e = samples.row_begin[row]; e < end; ++e) {
      model_.gather(state + row_at(slots[e]), values[e], sum);
    }
    return state[0] + model_.score(sum);
  }

  static void step(float* weight, float* accumulator, float gradient, float learning_rate) {
    *accumulator += gradient * gradient;
    *weight -= learning_rate * gradient / std::sqrt(*accumulator);
  }

  // Applies gradient[0 … weights) to one row of the state.
  void update(float* __restrict__ row, const float* __restrict__ gradient,
              const UpdateOptions& options) const {
    const int last = model_.weights() - 1;
    float* __restrict__ const accumulators = row + last + 1;
    for (int d = 0; d < last; ++d)
      step(row + d, accumulators + d, gradient[d], options.learning_rate);
    step(row + last, accumulators + last, gradient[last], options.learning_rate);
  }

  // The gradient by one edge's weights, the regulariser's included.
  void edge_gradient(const float* row, float value, const Sum& sum, float slope,
                     const UpdateOptions& options, float* gradient) const {
    const int last = model_.weights() - 1;
    model_.scatter(row, value, sum, slope, gradient);
    for (int d = 0; d < last; ++d) gradient[d] += options.l2_factors * row[d];
    gradient[last] += options.l2 * row[last];
  }

  double train_row(const Samples& samples, std::uint64_t row, const UpdateOptions& options,
                   float* state) const {
    Sum sum;
    const float score = score_row(samples, row, state, sum);
    const float label = samples.labels[row];
    const float slope = Loss::slope(score, label);
    const std::uint64_t end = samples.row_begin[row + 1];
    for (std::uint64_t e = samples.row_begin[row]; e < end; ++e) {
      float gradient[kGradients];
      float* const at = state + row_at(samples.slots[e]);
      edge_gradient(at, samples.values[e], sum, slope, options, gradient);
      update(at, gradient, options);
    }
    step(state, state + 1, slope, options.learning_rate);
    return Loss::loss(score, label);
  }

  double train_batch(const Samples& samples, std::span<const std::uint64_t> rows,
                     const UpdateOptions& options, float* state) {
    const auto weights = static_cast<std::size_t>(model_.weights());
    if (position_.empty()) position_.resize(layout_.slots);
    double loss = 0;
    float bias = 0;
    for (const std::uint64_t row : rows) {
      Sum sum;
      const float score = score_row(samples, row, state, sum);
      const float label = samples.labels[row];
      const float slope = Loss::slope(score, label);
      loss += Loss::loss(score, label);
      bias += slope;
      for (std::uint64_t e = samples.row_begin[row]; e < samples.row_begin[row + 1]; ++e) {
        const std::uint32_t slot = samples.slots[e];
        if (position_[slot] == 0) {
          touched_.push_back(slot);
          position_[slot] = static_cast<std::uint32_t>(touched_.size());
          gradients_.resize(touched_.size() * weights);
        }
        float gradient[kGradients];
        edge_gradient(state + row_at(slot), samples.values[e], sum, slope, options, gradient);
        float* const total = gradients_.data() + (position_[slot] - 1) * weights;
        for (std::size_t d = 0; d < weights; ++d) total[d] += gradient[d];
      }
    }
    for (std::size_t i = 0; i < touched_.size(); ++i) {
      update(state + row_at(touched_[i]), gradients_.data() + i * weights, options);
      position_[touched_[i]] = 0;
    }
    touched_.clear();
    gradients_.clear();
    step(state, state + 1, bias, options.learning_rate);
    return loss;
  }

  M model_;
  Layout layout_;
  // Scratch of train_batch: the slots that the batch uses, the sums of their gradients, and where
  // in `touched_` a slot is, plus one; 0 where it is not.
  std::vector<std::uint32_t> touched_;
  std::vector<float> gradients_;
  std::vector<std::uint32_t> position_;
};

template <int K>
std::unique_ptr<Flow> make_fm(int factors, const Layout& layout) {
  return std::make_unique<CpuFlow<FactorizationMachine<K>, LogisticLoss>>(
      FactorizationMachine<K>{.factors = factors}, layout);
}

}  // namespace

std::unique_ptr<Flow> make_flow(const ModelOptions& options, const Layout& layout) {
  if (options.kind == ModelKind::kLogistic) {
    return std::make_unique<CpuFlow<Linear, LogisticLoss>>(Linear{}, layout);
  }
  switch (options.factors) {
    case 4:
      return make_fm<4>(4, layout);
    case 8:
      return make_fm<8>(8, layout);
    case 16:
      return make_fm<16>(16, layout);
    case 32:
      return make_fm<32>(32, layout);
    default:
      return make_fm<0>(options.factors, layout);
  }
}

}  // namespace motley::wide
