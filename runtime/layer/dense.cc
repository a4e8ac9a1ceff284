#include <algorithm>
#include <utility>

#include "comm/error.h"
#include "runtime/gemm.h"
#include "runtime/layer/layer.h"

namespace motley::runtime {

namespace {

template <class T>
class DenseLayer final : public Layer<T> {
 public:
  DenseLayer(const Dense& options, std::size_t inputs) : options_(options), inputs_(inputs) {}

  const char* kind() const noexcept override { return "dense"; }
  ImageShape output() const noexcept override { return {.channels = options_.outputs}; }
  std::vector<Shape> parameters() const override {
    std::vector<Shape> shapes = {{"weight", {options_.outputs, inputs_}}};
    if (options_.bias == Bias::kLearned) shapes.push_back({"bias", {options_.outputs}});
    return shapes;
  }
  void place(std::vector<Slot<T>> slots, std::mt19937_64& random) override {
    slots_ = std::move(slots);
    draw_weights(slots_[0].values, inputs_, random);
  }

  void forward(std::span<const T> in, std::span<T> out, std::size_t rows, Mode /*mode*/) override {
    const bool biased = options_.bias == Bias::kLearned;
    for (std::size_t row = 0; biased && row < rows; ++row) {
      std::copy(slots_[1].values.begin(), slots_[1].values.end(),
                out.begin() + static_cast<std::ptrdiff_t>(row * options_.outputs));
    }
    multiply<T>({in.data(), rows, inputs_}, transposed(weights()), out.data(),
                biased ? Into::kAdd : Into::kReplace);
  }

  void backward(std::span<const T> in, std::span<const T> d_out, std::optional<std::span<T>> d_in,
                std::size_t rows) override {
    const Factor<T> d_outputs{d_out.data(), rows, options_.outputs};
    multiply<T>(transposed(d_outputs), {in.data(), rows, inputs_}, slots_[0].gradients.data(),
                Into::kAdd);
    if (options_.bias == Bias::kLearned) {
      for (std::size_t i = 0; i < d_out.size(); ++i) {
        slots_[1].gradients[i % options_.outputs] += d_out[i];
      }
    }
    if (d_in) multiply<T>(d_outputs, weights(), d_in->data(), Into::kReplace);
  }

 private:
  Factor<T> weights() const { return {slots_[0].values.data(), options_.outputs, inputs_}; }

  Dense options_;
  std::size_t inputs_;
  std::vector<Slot<T>> slots_;  // weight, bias
};

}  // namespace

template <class T>
LayerPtr<T> make_layer(const Dense& options, const ImageShape& in) {
  if (options.outputs == 0) {
    throw Error(ErrorCode::kInvalid, "Dense: 0 outputs. Use at least 1.");
  }
  return std::make_unique<DenseLayer<T>>(options, in.count());
}

template LayerPtr<float> make_layer(const Dense&, const ImageShape&);
template LayerPtr<double> make_layer(const Dense&, const ImageShape&);

}  // namespace motley::runtime
