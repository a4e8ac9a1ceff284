#include <algorithm>

#include "runtime/layer/layer.h"
#include "runtime/layer/window.h"

namespace motley::runtime {
namespace {

template <class T>
class PoolLayer final : public Layer<T> {
 public:
  PoolLayer(const Pool& options, const Window& window) : options_(options), window_(window) {}

  const char* kind() const noexcept override { return "pool"; }
  ImageShape output() const noexcept override {
    return {window_.image.channels, window_.rows(), window_.columns()};
  }

  void forward(std::span<const T> in, std::span<T> out, std::size_t rows, Mode /*mode*/) override {
    chosen_.resize(options_.kind == PoolKind::kMaximum ? out.size() : 0);
    for_each_place(rows, [&](std::size_t place, std::size_t corner) {
      T sum = 0;
      std::size_t largest = corner;
      for_each_element(corner, [&](std::size_t i) {
        sum += in[i];
        if (in[i] > in[largest]) largest = i;
      });
      if (options_.kind == PoolKind::kAverage) {
        out[place] = sum / static_cast<T>(options_.size * options_.size);
      } else {
        chosen_[place] = largest;
        out[place] = in[largest];
      }
    });
  }

  void backward(std::span<const T> /*in*/, std::span<const T> d_out,
                std::optional<std::span<T>> d_in, std::size_t rows) override {
    if (!d_in) return;
    std::fill(d_in->begin(), d_in->end(), T{0});
    for_each_place(rows, [&](std::size_t place, std::size_t corner) {
      if (options_.kind == PoolKind::kMaximum) {
        (*d_in)[chosen_[place]] += d_out[place];
      } else {
        const T share = d_out[place] / static_cast<T>(options_.size * options_.size);
        for_each_element(corner, [&](std::size_t i) { (*d_in)[i] += share; });
      }
    });
  }

 private:
  // body(index of an output, index of the first input in its window)
  template <class Body>
  void for_each_place(std::size_t rows, Body body) const {
    const ImageShape& image = window_.image;
    std::size_t place = 0;
    for (std::size_t plane = 0; plane < rows * image.channels; ++plane) {
      for (std::size_t y = 0; y < window_.rows(); ++y) {
        for (std::size_t x = 0; x < window_.columns(); ++x, ++place) {
          body(place,
               plane * image.pixels() + y * options_.stride * image.width + x * options_.stride);
        }
      }
    }
  }
  // body(index of an input)
  template <class Body>
  void for_each_element(std::size_t corner, Body body) const {
    for (std::size_t y = 0; y < options_.size; ++y) {
      for (std::size_t x = 0; x < options_.size; ++x) body(corner + y * window_.image.width + x);
    }
  }

  Pool options_;
  Window window_;
  std::vector<std::size_t> chosen_;  // kMaximum: the input that each output is
};

}  // namespace

template <class T>
LayerPtr<T> make_layer(const Pool& options, const ImageShape& in) {
  const Window window{in, options.size, options.stride};
  check("Pool", window);
  return std::make_unique<PoolLayer<T>>(options, window);
}

template LayerPtr<float> make_layer(const Pool&, const ImageShape&);
template LayerPtr<double> make_layer(const Pool&, const ImageShape&);

}  // namespace motley::runtime
