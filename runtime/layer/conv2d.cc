#include <numeric>
#include <utility>

#include "comm/error.h"
#include "runtime/gemm.h"
#include "runtime/layer/layer.h"
#include "runtime/layer/window.h"

namespace motley::runtime {
namespace {

// Image by image: its patches as a matrix, times the weights. Patches are made again in backward,
// which costs less than to keep those of a whole batch.
template <class T>
class Conv2dLayer final : public Layer<T> {
 public:
  Conv2dLayer(const Conv2d& options, const Window& window)
      : options_(options), window_(window), patches_(window.elements() * window.places()) {}

  const char* kind() const noexcept override { return "conv"; }
  ImageShape output() const noexcept override {
    return {options_.channels, window_.rows(), window_.columns()};
  }
  std::vector<Shape> parameters() const override {
    const std::size_t k = options_.kernel;
    std::vector<Shape> shapes = {{"weight", {options_.channels, window_.image.channels, k, k}}};
    if (options_.bias == Bias::kLearned) shapes.push_back({"bias", {options_.channels}});
    return shapes;
  }
  void place(std::vector<Slot<T>> slots, std::mt19937_64& random) override {
    slots_ = std::move(slots);
    draw_weights(slots_[0].values, window_.elements(), random);
  }

  void forward(std::span<const T> in, std::span<T> out, std::size_t rows, Mode /*mode*/) override {
    const std::size_t places = window_.places();
    for (std::size_t row = 0; row < rows; ++row) {
      image_to_patches<T>(window_, image(in, row), patches_);
      T* const out_row = out.data() + row * options_.channels * places;
      multiply<T>(weights(), patches(patches_), out_row, Into::kReplace);
      if (options_.bias == Bias::kNone) continue;
      for (std::size_t i = 0; i < options_.channels * places; ++i) {
        out_row[i] += slots_[1].values[i / places];
      }
    }
  }

  void backward(std::span<const T> in, std::span<const T> d_out, std::optional<std::span<T>> d_in,
                std::size_t rows) override {
    const std::size_t places = window_.places();
    d_patches_.resize(!d_in ? 0 : patches_.size());
    for (std::size_t row = 0; row < rows; ++row) {
      const T* const d_row = d_out.data() + row * options_.channels * places;
      const Factor<T> d_outputs{d_row, options_.channels, places};
      image_to_patches<T>(window_, image(in, row), patches_);
      multiply<T>(d_outputs, transposed(patches(patches_)), slots_[0].gradients.data(), Into::kAdd);
      for (std::size_t c = 0; options_.bias == Bias::kLearned && c < options_.channels; ++c) {
        slots_[1].gradients[c] +=
            std::accumulate(d_row + c * places, d_row + (c + 1) * places, T{0});
      }
      if (!d_in) continue;
      multiply<T>(transposed(weights()), d_outputs, d_patches_.data(), Into::kReplace);
      patches_to_image<T>(window_, d_patches_, image(*d_in, row));
    }
  }

 private:
  template <class U>
  std::span<U> image(std::span<U> images, std::size_t row) const {
    return images.subspan(row * window_.image.count(), window_.image.count());
  }
  Factor<T> weights() const {
    return {slots_[0].values.data(), options_.channels, window_.elements()};
  }
  Factor<T> patches(const std::vector<T>& memory) const {
    return {memory.data(), window_.elements(), window_.places()};
  }

  Conv2d options_;
  Window window_;
  std::vector<Slot<T>> slots_;  // weight, bias
  std::vector<T> patches_, d_patches_;
};

}  // namespace

template <class T>
LayerPtr<T> make_layer(const Conv2d& options, const ImageShape& in) {
  const Window window{in, options.kernel, options.stride, options.padding};
  check("Conv2d", window);
  if (options.channels == 0) {
    throw Error(ErrorCode::kInvalid, "Conv2d: 0 channels. Use at least 1.");
  }
  return std::make_unique<Conv2dLayer<T>>(options, window);
}

template LayerPtr<float> make_layer(const Conv2d&, const ImageShape&);
template LayerPtr<double> make_layer(const Conv2d&, const ImageShape&);

}  // namespace motley::runtime
